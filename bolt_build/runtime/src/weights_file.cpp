#include "bolt/weights_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "bolt/crc32.h"
#include "bolt/device.h"
#include "bolt/failure.h"

namespace bolt {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kLargestHeader = std::size_t{64} << 20;  // of half a million tensors

[[noreturn]] void bad(const std::string& sentence) { throw Failure(BOLT_BAD_WEIGHTS, sentence); }

std::string hex(const std::uint8_t* bytes, std::size_t count) {
  std::string text;
  char two[3];
  for (std::size_t i = 0; i < count; ++i) {
    std::snprintf(two, sizeof two, "%02x", bytes[i]);
    text += two;
  }
  return text;
}

std::string hex(std::uint32_t crc) {
  char text[9];
  std::snprintf(text, sizeof text, "%08x", crc);
  return text;
}

// Where the bytes come from. A file is read, not mapped: a mapping of a file that shrinks kills the process.
class Source {
 public:
  virtual ~Source() = default;
  virtual std::string subject() const = 0;
  virtual std::uint64_t size() const = 0;
  /// Copies a range, or returns errno.
  virtual int read(std::uint64_t offset, void* to, std::size_t bytes) const noexcept = 0;
  /// The bytes themselves where they are in memory already.
  virtual const std::byte* memory() const { return nullptr; }
};

class FileSource final : public Source {
 public:
  explicit FileSource(const char* path) : path_(path) {
    do {
      descriptor_ = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    } while (descriptor_ < 0 && errno == EINTR);
    if (descriptor_ < 0) bad("cannot open weights '" + path_ + "': " + std::strerror(errno));
    struct stat status {};
    if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
      close(descriptor_);
      bad("cannot read weights '" + path_ + "': not a regular file");
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
  }
  ~FileSource() override { close(descriptor_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  std::string subject() const override { return "'" + path_ + "'"; }
  std::uint64_t size() const override { return size_; }
  int read(std::uint64_t offset, void* to, std::size_t bytes) const noexcept override {
    auto* at = static_cast<std::byte*>(to);
    while (bytes > 0) {
      const ssize_t got = pread(descriptor_, at, bytes, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return got < 0 ? errno : EIO;
      at += got;
      offset += static_cast<std::uint64_t>(got);
      bytes -= static_cast<std::size_t>(got);
    }
    return 0;
  }

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

class MemorySource final : public Source {
 public:
  MemorySource(const void* data, std::size_t bytes) : data_(static_cast<const std::byte*>(data)), bytes_(bytes) {}
  std::string subject() const override { return "the memory given as weights"; }
  std::uint64_t size() const override { return bytes_; }
  int read(std::uint64_t offset, void* to, std::size_t bytes) const noexcept override {
    std::memcpy(to, data_ + offset, bytes);
    return 0;
  }
  const std::byte* memory() const override { return data_; }

 private:
  const std::byte* data_;
  std::size_t bytes_;
};

void read_or_fail(const Source& source, std::uint64_t offset, void* to, std::size_t bytes) {
  if (const int error = source.read(offset, to, bytes)) bad("cannot read " + source.subject() + ": " + std::strerror(error));
}

WeightsHeader read_fixed_header(const Source& source) {
  const std::string subject = source.subject();
  if (source.size() == 0) bad(subject + " is empty");
  WeightsHeader header{};
  const auto available = static_cast<std::size_t>(source.size() < sizeof header ? source.size() : sizeof header);
  read_or_fail(source, 0, &header, available);
  if (available < sizeof header.magic || std::memcmp(header.magic, kWeightsMagic, sizeof header.magic) != 0)
    bad(subject + " is not a bolt-build weights file");
  if (available < sizeof header) {
    bad(subject + " is truncated: " + std::to_string(available) + " bytes, fewer than its header");
  }
  if (header.version != kWeightsVersion) {
    bad(subject + " has format version " + std::to_string(header.version) + "; this engine reads version " +
        std::to_string(kWeightsVersion));
  }
  return header;
}

std::vector<std::byte> read_header(const Source& source, const WeightsHeader& fixed) {
  const std::string subject = source.subject();
  const std::uint64_t needed = sizeof fixed + std::uint64_t{fixed.entries} * sizeof(WeightsEntry) + fixed.names_bytes;
  if (fixed.header_bytes < needed || fixed.header_bytes > kLargestHeader || fixed.header_bytes % kAlignment != 0)
    bad("the header of " + subject + " is damaged: impossible sizes");
  if (source.size() < fixed.header_bytes) {
    bad(subject + " is truncated: " + std::to_string(source.size()) + " bytes, fewer than its header's " +
        std::to_string(fixed.header_bytes));
  }
  std::vector<std::byte> header(fixed.header_bytes);
  read_or_fail(source, 0, header.data(), header.size());
  std::memset(header.data() + offsetof(WeightsHeader, header_crc), 0, sizeof fixed.header_crc);
  const std::uint32_t crc = crc32(0, header.data(), header.size());
  if (crc != fixed.header_crc)
    bad("the header of " + subject + " is damaged: checksum " + hex(crc) + " where " + hex(fixed.header_crc) + " is expected");
  return header;
}

struct Contents {
  std::uint64_t start;  // of the payload in the file
  std::vector<WeightsEntry> entries;
};

Contents read_contents(const Source& source, const EngineInfo& engine) {
  const WeightsHeader fixed = read_fixed_header(source);
  const std::vector<std::byte> header = read_header(source, fixed);
  const std::string subject = source.subject();
  const std::string digest = hex(fixed.layout_digest, sizeof fixed.layout_digest);
  if (digest != engine.layout_digest) {
    bad(subject + " belongs to another engine: layout digest " + digest + " where " + engine.layout_digest + " is expected");
  }
  if (fixed.entries != static_cast<std::uint32_t>(engine.weights.count) || fixed.payload_bytes != engine.weights_bytes)
    bad("the header of " + subject + " contradicts its layout digest");
  const std::uint64_t expected = fixed.header_bytes + fixed.payload_bytes;
  if (source.size() < expected)
    bad(subject + " is truncated: " + std::to_string(source.size()) + " bytes where " + std::to_string(expected) + " are expected");
  if (source.size() > expected)
    bad(subject + " is " + std::to_string(source.size()) + " bytes long where " + std::to_string(expected) + " are expected");
  std::vector<WeightsEntry> entries(fixed.entries);
  if (!entries.empty()) std::memcpy(entries.data(), header.data() + sizeof fixed, entries.size() * sizeof(WeightsEntry));
  for (int i = 0; i < engine.weights.count; ++i) {
    if (entries[i].offset != engine.weights[i].offset || entries[i].bytes != engine.weights[i].bytes)
      bad("the header of " + subject + " contradicts its layout digest");
  }
  return {fixed.header_bytes, std::move(entries)};
}

bool aligned(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory) % kAlignment == 0; }

// Huge pages where the system gives them: touching 100 MB for the first time by small ones takes as long as reading it.
std::byte* allocate_payload(std::size_t bytes) {
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded));
  if (memory == nullptr) throw std::bad_alloc();
  if (alignment == kHugePage) static_cast<void>(madvise(memory, rounded, MADV_HUGEPAGE));
  return memory;
}

Payload read_payload(const Source& source, const EngineInfo& engine) {
  const Contents contents = read_contents(source, engine);
  const std::uint64_t start = contents.start;
  const std::vector<WeightsEntry>& entries = contents.entries;
  const std::size_t total = engine.weights_bytes;
  Payload payload;
  std::byte* copy = nullptr;
  if (source.memory() != nullptr && aligned(source.memory() + start)) {
    payload.data = source.memory() + start;
  } else {
    copy = allocate_payload(total);
    payload.owned.reset(copy);
    payload.data = copy;
  }
  const int count = engine.weights.count;
  std::vector<int> errors(count);
  std::vector<std::uint32_t> found(count);
  device::for_each(count, [&](int i) {
    const std::uint64_t offset = entries[i].offset;
    const std::size_t bytes = (i + 1 < count ? entries[i + 1].offset : total) - offset;
    if (copy != nullptr) errors[i] = source.read(start + offset, copy + offset, bytes);
    if (errors[i] == 0) found[i] = crc32(0, payload.data + offset, bytes);
  });
  for (int i = 0; i < count; ++i) {
    if (errors[i] != 0) bad("cannot read " + source.subject() + ": " + std::strerror(errors[i]));
    if (found[i] != entries[i].crc) {
      bad(source.subject() + " is damaged: tensor '" + engine.weights[i].name + "' has checksum " + hex(found[i]) + " where " +
          hex(entries[i].crc) + " is expected");
    }
  }
  return payload;
}

}  // namespace

Payload load_weights(const EngineInfo& engine, const bolt_model_options& options) {
  if (options.weights_path == nullptr && options.weights == nullptr)
    throw Failure(BOLT_INVALID_ARGUMENT, "no weights given: set weights_path, or weights and weights_bytes");
  if (options.weights_path != nullptr && options.weights != nullptr)
    throw Failure(BOLT_INVALID_ARGUMENT, "both weights_path and weights are given: set one of them");
  if (options.weights_path != nullptr) return read_payload(FileSource(options.weights_path), engine);
  return read_payload(MemorySource(options.weights, options.weights_bytes), engine);
}

}  // namespace bolt
