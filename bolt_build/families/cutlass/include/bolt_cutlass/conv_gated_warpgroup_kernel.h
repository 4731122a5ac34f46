// launch_conv of gated convolutions on WGMMA.
#pragma once

#include "bolt_cutlass/conv_warpgroup_kernel.h"
#include "bolt_cutlass/warpgroup_gated_store.h"
