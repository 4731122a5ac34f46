#include "overlap.h"

#include <algorithm>

#include "machine.h"

namespace emulator {
namespace {

constexpr std::uintptr_t kTracked = 4096, kLine = 64;

// Calls body(page, lines of it) for every page of [from, from + bytes).
template <typename Body>
void each_page(std::uintptr_t from, std::size_t bytes, const Body& body) {
  const std::uintptr_t end = from + bytes;
  while (from < end) {
    const std::uintptr_t page = from / kTracked, until = std::min(end, (page + 1) * kTracked);
    const std::uintptr_t first = from % kTracked / kLine, last = (until - 1) % kTracked / kLine;
    body(page, ~std::uint64_t{0} >> (63 - (last - first)) << first);
    from = until;
  }
}

}  // namespace

void Written::add(std::uintptr_t from, std::size_t bytes) {
  each_page(from, bytes, [&](std::uintptr_t page, std::uint64_t lines) {
    if (page != last_ || last_lines_ == nullptr) {
      last_ = page;
      last_lines_ = &pages_[page];  // stays where it is when others come
    }
    *last_lines_ |= lines;
  });
}

bool Written::meets(std::uintptr_t from, std::size_t bytes) const {
  bool found = false;
  each_page(from, bytes, [&](std::uintptr_t page, std::uint64_t lines) {
    const auto known = pages_.find(page);
    found = found || (known != pages_.end() && (known->second & lines) != 0);
  });
  return found;
}

void Written::add(const Written& other) {
  for (const auto& [page, lines] : other.pages_) pages_[page] |= lines;
}

Accesses& accesses() {
  static thread_local Accesses own;
  return own;
}

void note_access(const void* address, std::size_t bytes, bool writes) {
  Accesses& now = accesses();
  if (now.waited == nullptr) return;
  const auto from = reinterpret_cast<std::uintptr_t>(address);
  if (!*now.waited) [[unlikely]] {
    if (writes) throw Fault("a kernel writes before it has waited for the one in front");
    if (now.in_front->meets(from, bytes))
      throw Fault("a kernel reads what one in front has written, before it has waited for it");
  }
  if (writes) now.own.add(from, bytes);
}

}  // namespace emulator
