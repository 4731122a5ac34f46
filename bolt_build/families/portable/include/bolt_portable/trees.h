// Rows that go down decision trees. All tensors are row-major.
#pragma once

#include "bolt_portable/each.h"
#include "bolt_portable/element.h"

namespace bolt::portable {

/// From its root a row takes at most `depth` steps.
struct TreeLeaves {
  Index rows, columns, nodes, trees, depth;
};

/// As tables have it: the question, its column (of a leaf what is said of it), the nodes behind yes and no.
struct alignas(16) TreeNode {
  std::int32_t question, column, yes, no;
};

/// Questions from 8 on send what is no number to yes.
BOLT_HD inline bool tree_answer(int question, float number, float threshold) {
  if (number != number && question >= 8) return true;
  switch (question & 7) {
    case 1: return number <= threshold;
    case 2: return number < threshold;
    case 3: return number >= threshold;
    case 4: return number > threshold;
    case 5: return number == threshold;
    default: return number != threshold;
  }
}

/// A place of a table that has `extent` of them; `fault` (may be null) gets `mark` where it is none.
BOLT_HD inline Index tree_place(Index place, Index extent, std::uint32_t* fault, std::uint32_t mark) {
  if (place >= 0 && place < extent) return place;
#if defined(__CUDA_ARCH__)
  if (fault != nullptr) *reinterpret_cast<volatile std::uint32_t*>(fault) = mark;
#else
  if (fault != nullptr) __atomic_store_n(fault, mark, __ATOMIC_RELAXED);
#endif
  return 0;
}

template <typename In>
BOLT_HD inline std::int32_t tree_leaf(const TreeLeaves& p, const In* row, const float* thresholds, const TreeNode* nodes,
                                      Index root, std::uint32_t* fault, std::uint32_t mark) {
  Index at = tree_place(root, p.nodes, fault, mark);
  TreeNode node = nodes[at];
  for (Index step = 0; step < p.depth && (node.question & 7) != 0; ++step) {
    const float number = load(row + tree_place(node.column, p.columns, fault, mark));
    at = tree_place(tree_answer(node.question, number, thresholds[at]) ? node.yes : node.no, p.nodes, fault, mark);
    node = nodes[at];
  }
  return node.column;
}

template <typename In>
void tree_leaves(const Run& r, const TreeLeaves& p, const void* input, const void* thresholds, const void* nodes,
                 const void* roots, void* output) {
  const In* in = static_cast<const In*>(input);
  const float* limits = static_cast<const float*>(thresholds);
  const TreeNode* table = static_cast<const TreeNode*>(nodes);
  const std::int32_t* from = static_cast<const std::int32_t*>(roots);
  std::int32_t* out = static_cast<std::int32_t*>(output);
#if defined(__CUDACC__)
  std::uint32_t* const fault = r.fault;
  const std::uint32_t mark = r.mark();
#else
  std::uint32_t strayed = 0;
  std::uint32_t* const fault = &strayed;
  const std::uint32_t mark = 1;
#endif
  for_each_item(
      r, p.rows * p.trees, 4 * p.depth + 4,
      [=] BOLT_BODY(Index item) {
        const Position one = static_cast<Position>(item), trees = static_cast<Position>(p.trees);
        const Index row = one / trees, tree = one % trees;
        out[item] = tree_leaf(p, in + row * p.columns, limits, table, from[tree], fault, mark);
      },
      "tree");
#if !defined(__CUDACC__)
  if (strayed != 0) throw WrongValue("a table of its trees names a node or a column that is not there");
#endif
}

}  // namespace bolt::portable
