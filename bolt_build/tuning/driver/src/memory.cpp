#include "memory.h"

#include <algorithm>

#include "cuda_error.h"

namespace bolt_tuner {
namespace {

constexpr std::uint64_t kAlignment = 256;
constexpr int kCanaryByte = 0xA5, kPoisonByte = 0xFF;  // poison is NaN in every format

}  // namespace

Guarded::Guarded(std::string name, std::uint64_t bytes, int sets, cudaStream_t stream)
    : name_(std::move(name)), bytes_(bytes), sets_(sets) {
  stride_ = (kCanary + bytes_ + kCanary + kAlignment - 1) / kAlignment * kAlignment;
  const std::uint64_t all = stride_ * static_cast<std::uint64_t>(sets_);
  memory_ = allocate<char>(all);
  check(cudaMemsetAsync(memory_, kCanaryByte, all, stream), "writing canaries failed");
}

Guarded::~Guarded() { cudaFree(memory_); }

void* Guarded::at(int set) const { return static_cast<char*>(memory_) + stride_ * static_cast<std::uint64_t>(set) + kCanary; }

void Guarded::spread(cudaStream_t stream) const {
  for (int set = 1; set < sets_; ++set)
    check(cudaMemcpyAsync(at(set), at(0), bytes_, cudaMemcpyDeviceToDevice, stream), "copying on the GPU failed");
}

void Guarded::poison(int set, cudaStream_t stream) const {
  check(cudaMemsetAsync(at(set), kPoisonByte, bytes_, stream), "poisoning memory failed");
}

Watch::~Watch() {
  cudaFree(regions_);
  cudaFree(sums_);
}

void Watch::add(const Guarded& memory, bool input) {
  const std::size_t first = parts_.size();
  for (int set = 0; set < memory.sets(); ++set) {
    const char* at = static_cast<const char*>(memory.at(set));
    parts_.push_back({&memory, {at - Guarded::kCanary, Guarded::kCanary}, "before", 0});
    if (input && memory.bytes() > 0) parts_.push_back({&memory, {at, memory.bytes()}, "into", 0});
    parts_.push_back({&memory, {at + memory.bytes(), Guarded::kCanary}, "behind", 0});
  }
  const std::vector<std::uint64_t> found = sums(first);
  for (std::size_t i = first; i < parts_.size(); ++i) parts_[i].expected = found[i - first];
}

void Watch::remove(const Guarded& memory) {
  parts_.erase(std::remove_if(parts_.begin(), parts_.end(), [&](const Part& part) { return part.memory == &memory; }),
               parts_.end());
}

std::vector<std::uint64_t> Watch::sums(std::size_t first) {
  const std::size_t count = parts_.size() - first;
  if (parts_.size() > room_) {
    cudaFree(regions_);
    cudaFree(sums_);
    regions_ = nullptr;
    sums_ = nullptr;
    room_ = 2 * parts_.size();
    regions_ = allocate<Region>(room_);
    sums_ = allocate<std::uint64_t>(room_);
  }
  std::vector<Region> regions;
  std::uint64_t largest = 0;
  for (std::size_t i = first; i < parts_.size(); ++i) {
    regions.push_back(parts_[i].region);
    largest = std::max(largest, parts_[i].region.bytes);
  }
  std::vector<std::uint64_t> found(count);
  check(cudaMemcpyAsync(regions_, regions.data(), count * sizeof(Region), cudaMemcpyHostToDevice, stream_), "copying failed");
  sum(regions_, static_cast<int>(count), largest, sums_, stream_);
  check(cudaMemcpyAsync(found.data(), sums_, count * sizeof(std::uint64_t), cudaMemcpyDeviceToHost, stream_), "copying failed");
  check(cudaStreamSynchronize(stream_), "the GPU reports");
  return found;
}

std::string Watch::changed() {
  const std::vector<std::uint64_t> found = sums(0);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (found[i] != parts_[i].expected) return std::string("wrote ") + parts_[i].where + " " + parts_[i].memory->name();
  }
  return "";
}

}  // namespace bolt_tuner
