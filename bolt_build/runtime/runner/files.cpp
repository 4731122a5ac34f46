#include "files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "npy.h"
#include "npz.h"
#include "problem.h"

namespace bolt_runner {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// A regular file of at most `most` bytes: neither a pipe nor a device is waited for.
std::vector<unsigned char> read_file(const std::string& path, std::uint64_t most) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const File file(descriptor < 0 ? nullptr : fdopen(descriptor, "rb"));
  if (!file) throw Problem(kInvalid, "cannot open '" + path + "': " + std::strerror(errno));
  struct stat status {};
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode))
    throw Problem(kInvalid, "cannot read '" + path + "': not a regular file");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > most) {
    throw Problem(kInvalid, "cannot read '" + path + "': it has " + std::to_string(size) +
                                " bytes, more than all inputs of this engine (" + std::to_string(most) + " with room to spare)");
  }
  std::vector<unsigned char> data(static_cast<std::size_t>(size));
  data.resize(std::fread(data.data(), 1, data.size(), file.get()));
  if (std::ferror(file.get())) throw Problem(kInvalid, "cannot read '" + path + "': " + std::strerror(errno));
  return data;
}

void write_file(const std::string& path, const std::vector<unsigned char>& data) {
  const std::string temporary = path + "." + std::to_string(getpid()) + ".tmp";
  File file(std::fopen(temporary.c_str(), "wb"));
  bool good = file != nullptr && std::fwrite(data.data(), 1, data.size(), file.get()) == data.size();
  good = file != nullptr && std::fclose(file.release()) == 0 && good;
  if (!good || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int why = errno;
    std::remove(temporary.c_str());
    throw Problem(why == ENOSPC || why == EDQUOT || why == EFBIG ? kFull : kInvalid,
                  "cannot write '" + path + "': " + std::strerror(why));
  }
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_raw(const std::string& path) { return ends_with(path, ".bin") || ends_with(path, ".raw"); }

void require_format(const std::string& path, bool raw) {
  if (ends_with(path, ".npy") || ends_with(path, ".npz") || (raw && is_raw(path))) return;
  const std::string kinds = raw ? "is neither a .npy, .npz, .bin nor .raw file" : "is neither a .npy nor a .npz file";
  throw Problem(kWrongUsage, "'" + path + "' " + kinds + " by its name");
}

// The port that a bare .npy means: the only one.
std::string only(const std::vector<std::string>& names, const std::string& path, const char* kind) {
  if (names.size() == 1) return names[0];
  throw Problem(kWrongUsage,
                "which " + std::string(kind) + " is '" + path + "'? Say NAME=" + path + ", NAME one of " + list(names));
}

}  // namespace

std::vector<GivenInput> read_inputs(const std::vector<FileArgument>& files, const std::vector<std::string>& names,
                                    std::uint64_t most) {
  std::vector<GivenInput> found;
  const auto add = [&](const std::string& name, Array array, const std::string& path, int code, bool raw = false) {
    if (!contains(names, name))
      throw Problem(code, "'" + path + "': the engine has no input '" + printable(name) + "'; its inputs: " + list(names));
    for (const GivenInput& other : found) {
      if (other.name == name)
        throw Problem(kWrongUsage, "input '" + name + "' is given twice: '" + other.source + "' and '" + path + "'");
    }
    found.push_back({name, std::move(array), path, raw});
  };
  for (const FileArgument& file : files) {
    require_format(file.path, true);
    const std::string what = "'" + file.path + "'";
    if (ends_with(file.path, ".npz")) {
      if (!file.name.empty()) throw Problem(kWrongUsage, "--input NAME=FILE takes a .npy file, not " + what);
      const std::vector<unsigned char> data = read_file(file.path, most);
      for (NamedArray& entry : parse_npz(data.data(), data.size(), what))
        add(entry.name, std::move(entry.array), file.path, kInvalid);
    } else {
      const std::string name = file.name.empty() ? only(names, file.path, "input") : file.name;
      std::vector<unsigned char> data = read_file(file.path, most);
      if (is_raw(file.path)) {
        const auto bytes = static_cast<int64_t>(data.size());
        add(name, {BOLT_U8, {bytes}, std::move(data)}, file.path, kWrongUsage, true);
      } else {
        add(name, parse_npy(data.data(), data.size(), what), file.path, kWrongUsage);
      }
    }
  }
  return found;
}

void check_outputs(const std::vector<FileArgument>& files, const std::vector<std::string>& names) {
  for (const FileArgument& file : files) {
    require_format(file.path, false);
    const bool archive = ends_with(file.path, ".npz");
    if (archive && !file.name.empty()) throw Problem(kWrongUsage, "--output NAME=FILE takes a .npy file, not '" + file.path + "'");
    const std::string name = archive || !file.name.empty() ? file.name : only(names, file.path, "output");
    if (!archive && !contains(names, name))
      throw Problem(kWrongUsage, "'" + file.path + "': the engine has no output '" + name + "'; its outputs: " + list(names));
  }
}

void write_outputs(const std::vector<FileArgument>& files, const std::vector<NamedArray>& arrays) {
  for (const FileArgument& file : files) {
    if (ends_with(file.path, ".npz")) {
      write_file(file.path, npz_bytes(arrays, "'" + file.path + "'"));
      continue;
    }
    for (const NamedArray& entry : arrays) {
      if (file.name.empty() || entry.name == file.name) write_file(file.path, npy_bytes(entry.array));
    }
  }
}

}  // namespace bolt_runner
