// How blocks begin, take turns and end.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "module.h"
#include "overlap.h"

namespace emulator {
namespace {

/// SplitMix64's: neighbouring numbers have nothing to do with each other afterwards.
std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

/// Has this thread's accesses counted as a cluster's.
class Touching {
 public:
  Touching(const bool& waited, const Written& in_front) {
    accesses() = Accesses{&waited, &in_front, {}};
  }
  ~Touching() { accesses().waited = nullptr; }
  Touching(const Touching&) = delete;
  Touching& operator=(const Touching&) = delete;
};

}  // namespace

std::byte* allocate(std::size_t bytes) {
  constexpr std::size_t alignment = 1024;
  return static_cast<std::byte*>(std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment));
}

// Stands where a barrier is kept, whose count no kernel may read.
constexpr std::uint64_t barrier_mark = 0x7ff4ba551e57ba55ull;

void Block::Free::operator()(std::byte* p) const { std::free(p); }

Block::Block(Cluster& c, const Entry& entry, const Launch& launch, unsigned r)
    : cluster(c), rank(r), bytes_(entry.dynamic_offset() + launch.dynamic_shared) {
  memory_.reset(allocate(bytes_));
  const unsigned threads = launch.block.x * launch.block.y * launch.block.z;
  for (unsigned warp = 0; warp < (threads + lanes - 1) / lanes; ++warp)
    warps.push_back(std::make_unique<Warp>(*this, entry, launch, warp));
}

void Block::begin(Dim at) {
  index = at;
  numbered = {};
  spare_registers = 0;
  barriers_.clear();
  std::memset(memory_.get(), 0xff, bytes_);
  for (const auto& warp : warps) warp->begin();
}

std::byte* Block::shared(std::uint32_t address, std::size_t bytes) {
  if (address < first_shared || address + bytes > bytes_)
    throw Fault(std::to_string(bytes) + " bytes at " + std::to_string(address) + " of shared memory that ends at " +
                std::to_string(bytes_));
  return memory_.get() + address;
}

void Block::init_barrier(std::uint32_t address, std::uint32_t count) {
  address &= (1u << rank_shift) - 1;
  if (address % 8 != 0 || count == 0 || count >= 1u << 20)
    throw Fault("a barrier of " + std::to_string(count) + " arrivals at " + std::to_string(address));
  std::memcpy(shared(address, 8), &barrier_mark, 8);
  barriers_[address] = {count, count, 0, false};
}

ArrivalBarrier& Block::barrier(std::uint32_t address) {
  if (const std::uint32_t named = address >> rank_shift; named != 0) {
    if (named > cluster.blocks.size()) throw Fault("a barrier of a block beyond the cluster");
    cluster.blocks[named - 1]->require_running();
    return cluster.blocks[named - 1]->barrier(address & ((1u << rank_shift) - 1));
  }
  const auto found = barriers_.find(address);
  if (found == barriers_.end()) throw Fault("no barrier was begun at " + std::to_string(address) + " of shared memory");
  if (std::memcmp(shared(address, 8), &barrier_mark, 8) != 0)
    throw Fault("something was written over the barrier at " + std::to_string(address));
  return found->second;
}

void Block::count(std::uint32_t address, std::uint32_t arrivals, std::int64_t bytes) {
  ArrivalBarrier& at = barrier(address);
  at.bytes += bytes;
  if (arrivals > at.pending) throw Fault("a barrier that more came to than were to come, at " + std::to_string(address));
  at.pending -= arrivals;
  at.settle();
}

void Block::require_running() const {
  if (live_warps() == 0) throw Fault("shared memory of a block that has ended");
}

unsigned Block::live_warps() const {
  unsigned count = 0;
  for (const auto& warp : warps) count += !warp->done();
  return count;
}

Cluster::Cluster(const Launch& l, const Chance& chance) : launch(l), chance_(chance) {
  const unsigned count = l.cluster.x * l.cluster.y * l.cluster.z;
  for (unsigned rank = 0; rank < count; ++rank)
    blocks.push_back(std::make_unique<Block>(*this, *l.entry, l, rank));
}

std::uint64_t Cluster::random() { return mixed(state_ += 0x9e3779b97f4a7c15ull); }

void Cluster::begin(Copy copy) {
  if (chance_.shuffled)
    copies_.push_back(std::move(copy));
  else
    copy.happen();
}

bool Cluster::happened(const Warp* owner, int lane, std::uint64_t group) const {
  for (const Copy& copy : copies_)
    if (copy.owner == owner && copy.lane == lane && copy.group <= group) return false;
  return true;
}

std::string Cluster::whereabouts() const {
  std::string text;
  for (const auto& block : blocks)
    for (const auto& warp : block->warps)
      if (!warp->done()) text += "\n  " + warp->whereabouts();
  return text;
}

void Cluster::begin(std::uint64_t number) {
  state_ = mixed(mixed(chance_.seed) + number);
  copies_.clear();
  waited = !launch.overlaps;
  const Dim& c = launch.cluster;
  const std::uint64_t across = launch.grid.x / c.x, down = launch.grid.y / c.y;
  const Dim first{static_cast<unsigned>(number % across) * c.x, static_cast<unsigned>(number / across % down) * c.y,
                  static_cast<unsigned>(number / across / down) * c.z};
  order_.clear();
  for (const auto& block : blocks) {
    block->begin({first.x + block->rank % c.x, first.y + block->rank / c.x % c.y, first.z + block->rank / c.x / c.y});
    for (const auto& warp : block->warps) order_.push_back(warp.get());
  }
  left_ = order_.size();
}

bool Cluster::proceed() {
  bool proceeded = false;
  if (chance_.shuffled)
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random() % i]);
  for (Warp* const warp : order_) {
    if (warp->done()) continue;
    if (chance_.shuffled && random() % 4 == 0) continue;
    if (!warp->copies.empty() && random() % 4 == 0) {
      // One that is not waited for, too: what was written where it comes to is lost.
      const auto which = warp->copies.begin() + static_cast<std::ptrdiff_t>(random() % warp->copies.size());
      which->happen();
      warp->copies.erase(which);
    }
    const std::uint64_t budget = chance_.shuffled ? 1 + random() % 4096 : 1 << 16;
    proceeded = warp->run(budget) || proceeded;
    if (warp->done()) --left_;
  }
  // Copies happen now and then; for certain where everybody waits.
  if (!copies_.empty() && (!proceeded || random() % 4 == 0)) {
    const std::size_t which = random() % copies_.size();
    const Copy copy = std::move(copies_[which]);
    copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(which));
    copy.happen();
    proceeded = true;
  }
  if (chance_.shuffled && !proceeded) {
    // Some may have been passed over.
    for (Warp* const warp : order_)
      if (!warp->done()) {
        proceeded = warp->run(1 << 12) || proceeded;
        if (warp->done()) --left_;
      }
  }
  if (done() && !copies_.empty()) throw Fault("a block ended while copies from or to its shared memory were under way");
  return proceeded || !copies_.empty();
}

namespace {

/// Clusters of a grid one after the other, each number of `next`.
void run_in_turn(const Launch& launch, const Chance& chance, const InFront& in_front, std::atomic<std::uint64_t>& next,
                 std::uint64_t clusters) {
  Cluster own(launch, chance);
  const Touching touching(own.waited, in_front.written);
  for (std::uint64_t number; (number = next++) < clusters;) {
    own.begin(number);
    while (!own.done())
      if (!own.proceed() && !own.done()) throw Fault("nothing can proceed" + own.whereabouts());
    if (!own.waited) accesses().lets_next_early = true;  // by its end
  }
}

/// Rounds that a cluster stays asleep at least, or awake.
constexpr std::uint64_t spell = 128;

/// Clusters that kernels of other streams leave room for at least, for ever: as many as Hopper has in a largest one.
constexpr std::uint64_t least_room = 8;

/// Clusters of a grid that have room at once.
std::uint64_t room_for(const Launch& launch, const Chance& chance, std::uint64_t clusters) {
  return chance.crowded && !launch.cooperative ? std::min(clusters, least_room) : clusters;
}

/// Clusters of a grid side by side, in rounds. They begin in order, as there is room. Shuffled, about half of them sleep for a
/// while, then others.
void run_together(const Launch& launch, const Chance& chance, const InFront& in_front, std::uint64_t clusters) {
  const std::uint64_t room = room_for(launch, chance, clusters);
  std::vector<std::unique_ptr<Cluster>> all;
  std::uint64_t next = 0;
  const auto fill = [&] {
    for (; next < clusters && all.size() < room; ++next) {
      all.push_back(std::make_unique<Cluster>(launch, chance));
      all.back()->begin(next);
    }
  };
  fill();
  const Touching touching(all.front()->waited, in_front.written);
  for (std::uint64_t round = 0; !all.empty(); ++round) {
    const std::uint64_t own = mixed(mixed(chance.seed) + round), nap = mixed(mixed(chance.seed) ^ round / spell);
    if (chance.shuffled)
      for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[mixed(own + i) % i]);
    const auto sleeps = [&](const Cluster& cluster) {
      const Dim& at = cluster.blocks.front()->index;
      return chance.shuffled && mixed(nap + (std::uint64_t{at.z} << 40) + (std::uint64_t{at.y} << 20) + at.x) % 2 == 0;
    };
    bool proceeded = false;
    const auto proceed = [&](bool sleeping) {
      for (const auto& cluster : all) {
        if (sleeps(*cluster) != sleeping) continue;
        accesses().waited = &cluster->waited;
        proceeded = cluster->proceed() || proceeded;
      }
    };
    proceed(false);
    // Whoever sleeps wakes where all others wait.
    if (!proceeded) proceed(true);
    if (!proceeded) {
      std::string text = "nothing can proceed";
      for (const auto& cluster : all) text += cluster->whereabouts();
      throw Fault(text);
    }
    for (const auto& cluster : all)
      if (cluster->done() && !cluster->waited) accesses().lets_next_early = true;
    all.erase(std::remove_if(all.begin(), all.end(), [](const auto& cluster) { return cluster->done(); }), all.end());
    fill();
  }
}

}  // namespace

void run(const Launch& launch, const Chance& chance, InFront& in_front) {
  const std::lock_guard turn(in_front.mutex);
  if (!launch.overlaps) in_front.written.clear();
  std::vector<Written> written;
  bool lets_next_early = false;
  const Dim &grid = launch.grid, &cluster = launch.cluster;
  const std::uint64_t clusters = static_cast<std::uint64_t>(grid.x / cluster.x) * (grid.y / cluster.y) * (grid.z / cluster.z);
  std::atomic<std::uint64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      if (launch.together)
        run_together(launch, chance, in_front, clusters);
      else
        run_in_turn(launch, chance, in_front, next, clusters);
      const std::lock_guard lock(mutex);
      lets_next_early = lets_next_early || accesses().lets_next_early;
      written.push_back(std::move(accesses().own));
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (failure == nullptr) failure = std::current_exception();
      next = clusters;
    }
  };
  // Blocks that wait for earlier ones go one after the other where they do not go together.
  const std::uint64_t processors = launch.together || acquires(*launch.entry)
                                       ? 1
                                       : std::min<std::uint64_t>(clusters, std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> others;
  for (std::uint64_t i = 1; i < processors; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  // A kernel whose blocks have all waited before they let the next one begin leaves it nothing to wait for but its own.
  if (!lets_next_early) in_front.written.clear();
  for (const Written& own : written) in_front.written.add(own);
  if (failure != nullptr) {
    try {
      std::rethrow_exception(failure);
    } catch (const IllegalAddress& fault) {
      throw IllegalAddress(launch.entry->name + ": " + fault.what());
    } catch (const Fault& fault) {
      throw Fault(launch.entry->name + ": " + fault.what());
    } catch (const Unsupported& unsupported) {
      throw Unsupported(launch.entry->name + ": " + unsupported.what());
    }
  }
}

}  // namespace emulator
