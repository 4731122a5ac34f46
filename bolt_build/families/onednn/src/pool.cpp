#include "bolt_onednn/pool.h"

#include <functional>
#include <numeric>

#include "primitive.h"

namespace bolt::onednn {
namespace {

dnnl::algorithm algorithm(Pooling mode) {
  switch (mode) {
    case Pooling::max: return dnnl::algorithm::pooling_max;
    case Pooling::average_with_padding: return dnnl::algorithm::pooling_avg_include_padding;
    case Pooling::average_without_padding: return dnnl::algorithm::pooling_avg_exclude_padding;
  }
  return dnnl::algorithm::undef;
}

std::unique_ptr<const Primitive> make(Pooling mode, const PoolShape& shape) {
  require(shape.type);
  const Description source = channels_last(extents(shape.source), shape.type);
  const Description destination = channels_last(extents(shape.destination), shape.type);
  const auto product = [](const Dims& dims) {
    return std::accumulate(dims.at, dims.at + dims.rank, 1.0, std::multiplies<>());
  };
  const bool alone = product(shape.destination) * product(shape.kernel) < few_operations;
  const Team team(alone);
  const dnnl::pooling_forward::primitive_desc description(
      cpu(), dnnl::prop_kind::forward_inference, algorithm(mode), source, destination, extents(shape.strides),
      extents(shape.kernel), gaps(shape.dilations), extents(shape.pads_begin), extents(shape.pads_end),
      attributes({}, destination));
  auto primitive = std::make_unique<Primitive>(alone);
  primitive->bind(DNNL_ARG_SRC, source);
  primitive->create(description);
  return primitive;
}

}  // namespace

Pool::Pool(const Prepare&, Pooling mode, const PoolShape& shape) : Kernel(make(mode, shape)) {}

}  // namespace bolt::onednn
