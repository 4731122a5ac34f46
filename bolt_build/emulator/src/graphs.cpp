#include <memory>
#include <utility>
#include <vector>

#include "context.h"
#include "handles.h"
#include "streams.h"

struct CUgraphExec_st {
  std::vector<emulator::Work> nodes;
};

using namespace emulator;

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call([&] { handles<CUgraph_st>().remove(graph); });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long flags) {
  return call([&] {
    require(made != nullptr && flags == 0, cudaErrorInvalidValue);
    auto ready = std::make_unique<CUgraphExec_st>();
    ready->nodes = handles<CUgraph_st>().at(graph).nodes;
    *made = handles<CUgraphExec_st>().add(std::move(ready));
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t ready) {
  return call([&] { handles<CUgraphExec_st>().remove(ready); });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t ready, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
  return call([&] {
    require(info != nullptr, cudaErrorInvalidValue);
    CUgraphExec_st& to = handles<CUgraphExec_st>().at(ready);
    const CUgraph_st& from = handles<CUgraph_st>().at(graph);
    *info = {cudaGraphExecUpdateSuccess, nullptr, nullptr};
    if (to.nodes.size() != from.nodes.size()) {
      info->result = cudaGraphExecUpdateErrorTopologyChanged;
      throw CallError{cudaErrorGraphExecUpdateFailure};
    }
    for (std::size_t i = 0; i < to.nodes.size(); ++i) {
      if (to.nodes[i].index() == from.nodes[i].index()) continue;
      info->result = cudaGraphExecUpdateErrorNodeTypeChanged;
      throw CallError{cudaErrorGraphExecUpdateFailure};
    }
    to.nodes = from.nodes;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t ready, cudaStream_t stream) {
  return call([&] {
    const CUgraphExec_st& from = handles<CUgraphExec_st>().at(ready);
    require_not_recording(stream);
    // A recording begins when all in front has ended, and what is behind waits for all of it.
    everything_has_ended(stream);
    for (const Work& work : from.nodes) perform(work, stream);
    everything_has_ended(stream);
  });
}
