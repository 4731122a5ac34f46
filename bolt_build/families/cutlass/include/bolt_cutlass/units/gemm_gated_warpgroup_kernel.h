// launch_gemm of gated matrix products on WGMMA.
#pragma once

#include "bolt_cutlass/units/gemm_warpgroup_kernel.h"
#include "bolt_cutlass/warpgroups/warpgroup_gated_store.h"
