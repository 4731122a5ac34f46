#include "npz.h"

#include <cstdint>
#include <cstring>

#include "bolt/crc32.h"
#include "npy.h"
#include "problem.h"

namespace bolt_runner {
namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;
constexpr std::uint32_t kZip64 = 0xFFFFFFFF;
constexpr std::size_t kLongestName = 0xFFFF, kMostEntries = 0xFFFE;

class Bytes {
 public:
  Bytes(const unsigned char* data, std::size_t size, const std::string& what) : data_(data), size_(size), what_(what) {}
  std::uint16_t u16(std::size_t at) const { return static_cast<std::uint16_t>(range(at, 2)[0] | range(at, 2)[1] << 8); }
  std::uint32_t u32(std::size_t at) const { return u16(at) | static_cast<std::uint32_t>(u16(at + 2)) << 16; }
  const unsigned char* range(std::size_t at, std::size_t bytes) const {
    if (at > size_ || bytes > size_ - at) fail("truncated");
    return data_ + at;
  }
  std::size_t size() const { return size_; }
  [[noreturn]] void fail(const std::string& why) const { throw Problem(kInvalid, what_ + ": " + why); }

 private:
  const unsigned char* data_;
  std::size_t size_;
  const std::string& what_;
};

// The end record stands at the end, before a comment of at most 65535 bytes.
std::size_t find_end(const Bytes& file) {
  if (file.size() < kEndBytes) file.fail("not a .npz file");
  const std::size_t last = file.size() - kEndBytes;
  for (std::size_t back = 0; back <= last && back <= 0xFFFF; ++back) {
    if (file.u32(last - back) == kEnd && file.u16(last - back + 20) == back) return last - back;
  }
  file.fail("not a .npz file, or truncated");
}

NamedArray read_entry(const Bytes& file, std::size_t at, const std::string& what) {
  const std::uint16_t flags = file.u16(at + 8), method = file.u16(at + 10), name_bytes = file.u16(at + 28);
  const std::uint32_t crc = file.u32(at + 16), stored = file.u32(at + 20), size = file.u32(at + 24), local = file.u32(at + 42);
  const std::string file_name(reinterpret_cast<const char*>(file.range(at + kCentralBytes, name_bytes)), name_bytes);
  const std::string suffix = ".npy";
  const bool npy =
      file_name.size() > suffix.size() && file_name.compare(file_name.size() - suffix.size(), suffix.size(), suffix) == 0;
  if (!npy) file.fail("'" + printable(file_name) + "' in it is no .npy file");
  const std::string name = file_name.substr(0, file_name.size() - suffix.size()),
                    shown = std::string("'").append(printable(name)) + "'";
  if (flags & 1) file.fail(shown + " is encrypted");
  if (method != 0) file.fail(shown + " is compressed: save with numpy.savez, not numpy.savez_compressed");
  if (size == kZip64 || stored == kZip64 || local == kZip64) file.fail(shown + " is larger than 4 GiB: use .npy files");
  if (file.u32(local) != kLocal || stored != size) file.fail(shown + " is damaged");
  const std::size_t start = local + kLocalBytes + file.u16(local + 26) + file.u16(local + 28);
  const unsigned char* data = file.range(start, size);
  if (bolt::crc32(0, data, size) != crc) file.fail(shown + " is damaged: its checksum differs");
  return {name, parse_npy(data, size, what + ": " + shown)};
}

class Writer {
 public:
  void u16(std::uint32_t value) {
    bytes.push_back(static_cast<unsigned char>(value & 0xFF));
    bytes.push_back(static_cast<unsigned char>(value >> 8 & 0xFF));
  }
  void u32(std::uint32_t value) { u16(value & 0xFFFF), u16(value >> 16); }
  template <typename Range>
  void add(const Range& range) {
    bytes.insert(bytes.end(), range.begin(), range.end());
  }
  // What local and central headers have in common: flags (UTF-8 name), stored, 1 January 1980, checksum, sizes, name.
  void description(std::uint32_t crc, std::uint32_t size, const std::string& name) {
    u16(20), u16(1 << 11), u16(0), u16(0), u16(1 << 5 | 1), u32(crc), u32(size), u32(size);
    u16(static_cast<std::uint32_t>(name.size())), u16(0);
  }
  std::vector<unsigned char> bytes;
};

}  // namespace

std::vector<NamedArray> parse_npz(const unsigned char* data, std::size_t bytes, const std::string& what) {
  const Bytes file(data, bytes, what);
  const std::size_t end = find_end(file);
  const int count = file.u16(end + 10);
  std::size_t at = file.u32(end + 16);
  if (count == 0xFFFF || at == kZip64) file.fail("larger than 4 GiB: use .npy files");
  std::vector<NamedArray> arrays;
  std::size_t taken = 0;
  for (int i = 0; i < count; ++i) {
    file.range(at, kCentralBytes);
    if (file.u32(at) != kCentral) file.fail("its directory is damaged");
    // Entries that share bytes would take more memory than the file has.
    taken += kLocalBytes + file.u32(at + 24);
    if (taken > bytes) file.fail("its entries overlap");
    arrays.push_back(read_entry(file, at, what));
    at += kCentralBytes + file.u16(at + 28) + file.u16(at + 30) + file.u16(at + 32);
  }
  return arrays;
}

std::vector<unsigned char> npz_bytes(const std::vector<NamedArray>& arrays, const std::string& what) {
  Writer file, directory;
  for (const NamedArray& entry : arrays) {
    const std::vector<unsigned char> npy = npy_bytes(entry.array);
    const std::string name = entry.name + ".npy";
    const bool fits = file.bytes.size() + npy.size() + name.size() + kLocalBytes < kZip64;
    if (!fits || name.size() > kLongestName || arrays.size() > kMostEntries)
      throw Problem(kInvalid, what + ": larger than an archive can be (4 GiB, 65534 arrays): use .npy files");
    const auto offset = static_cast<std::uint32_t>(file.bytes.size());
    const auto size = static_cast<std::uint32_t>(npy.size());
    const std::uint32_t crc = bolt::crc32(0, npy.data(), npy.size());
    file.u32(kLocal), file.description(crc, size, name), file.add(name), file.add(npy);
    directory.u32(kCentral), directory.u16(20), directory.description(crc, size, name);
    directory.u16(0), directory.u16(0), directory.u16(0), directory.u32(0), directory.u32(offset), directory.add(name);
  }
  const auto start = static_cast<std::uint32_t>(file.bytes.size());
  const auto count = static_cast<std::uint32_t>(arrays.size());
  file.add(directory.bytes);
  file.u32(kEnd), file.u16(0), file.u16(0), file.u16(count), file.u16(count);
  file.u32(static_cast<std::uint32_t>(directory.bytes.size())), file.u32(start), file.u16(0);
  return std::move(file.bytes);
}

}  // namespace bolt_runner
