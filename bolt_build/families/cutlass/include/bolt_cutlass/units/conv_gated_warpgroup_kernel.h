// launch_conv of gated convolutions on WGMMA.
#pragma once

#include "bolt_cutlass/units/conv_warpgroup_kernel.h"
#include "bolt_cutlass/warpgroups/warpgroup_gated_store.h"
