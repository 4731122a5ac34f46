#include "process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "problem.h"

namespace bolt_tuner {
namespace {

constexpr int kCannotStart = 127;

std::string words_of(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return "was ended by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
  }
  return "ended with exit status " + std::to_string(WEXITSTATUS(status));
}

[[noreturn]] void become(const std::vector<std::string>& argv,
                         const std::vector<std::pair<std::string, std::string>>& environment, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCannotStart);  // it died before that was set
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(words[0], words.data());
  const std::string text = "run: cannot start '" + argv[0] + "': " + std::strerror(errno) + "\n";
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(kCannotStart);
  _exit(kCannotStart);
}

}  // namespace

Child::Child(const std::vector<std::string>& argv, const std::vector<std::pair<std::string, std::string>>& environment) {
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) != 0) throw Problem(kFailed, std::string("no pipe can be made: ") + std::strerror(errno));
  if (pipe2(from, O_CLOEXEC) != 0) {
    close(to[0]);
    close(to[1]);
    throw Problem(kFailed, std::string("no pipe can be made: ") + std::strerror(errno));
  }
  const pid_t parent = getpid();
  const pid_t made = fork();
  if (made == 0) {
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    become(argv, environment, parent);
  }
  close(to[0]);
  close(from[1]);
  if (made < 0) {
    close(to[1]);
    close(from[0]);
    throw Problem(kFailed, std::string("no process can be started: ") + std::strerror(errno));
  }
  setpgid(made, made);  // so that the group is there, whichever of the two is first
  pid_ = made;
  input_ = to[1];
  output_ = from[0];
}

Child& Child::operator=(Child&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::exchange(other.pid_, -1);
    input_ = std::exchange(other.input_, -1);
    output_ = std::exchange(other.output_, -1);
  }
  return *this;
}

bool Child::say(const std::string& line) const {
  return write(input_, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

std::string Child::end() {
  if (!running()) return "";
  int status = 0;
  // Where it has ended by itself its own words count, but it may have left others of its group behind.
  siginfo_t info{};
  const bool over = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
  kill(-pid_, SIGKILL);
  if (!over) kill(pid_, SIGKILL);
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  close(input_);
  close(output_);
  pid_ = input_ = output_ = -1;
  return words_of(status);
}

std::string own_program() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0 || length == sizeof path) throw Problem(kFailed, "this program does not find its own file");
  return {path, static_cast<std::size_t>(length)};
}

}  // namespace bolt_tuner
