"""Compares a built engine with onnxruntime: outputs on seeded inputs, and every layer that a plan lets one see."""

from bolt_build.verify.engine import verify_engine
from bolt_build.verify.report import BatchReport, LayerReport, OutputReport, VerifyReport
from bolt_build.verify.tolerance import Tolerances

__all__ = ["BatchReport", "LayerReport", "OutputReport", "Tolerances", "VerifyReport", "verify_engine"]
