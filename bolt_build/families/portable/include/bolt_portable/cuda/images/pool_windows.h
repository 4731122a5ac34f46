// The windows of a pooling whose sizes the compiler knows.
#pragma once

namespace bolt::portable {

/// Windows over rows and columns, as the compiler knows them: cells of a window, from one window to the next, and from one
/// cell of a window to the next.
template <int cells_h, int cells_w, int step_h, int step_w, int gap_h, int gap_w>
struct PoolWindows {
  static constexpr bool apart = false;
  static constexpr int step = step_h, step_across = step_w;
  static constexpr int height = (cells_h - 1) * gap_h + 1, width = (cells_w - 1) * gap_w + 1;
  /// Windows below each other that are open at once, at most.
  static constexpr int live = (height + step_h - 1) / step_h;
  /// The row of a step that is a window's last.
  static constexpr int completes = (height - 1) % step_h;

  /// True where a window has cells in its row, and in its column.
  static __host__ __device__ constexpr bool has_row(int row) { return row < height && row % gap_h == 0; }
  static __host__ __device__ constexpr bool has_column(int column) {
    return column >= 0 && column < width && column % gap_w == 0;
  }
  /// Columns of `across` windows beside each other.
  static __host__ __device__ constexpr int columns(int across) { return (across - 1) * step_w + width; }
  static __host__ __device__ constexpr bool any_has_column(int column, int across) {
    for (int window = 0; window < across; ++window)
      if (has_column(column - window * step_w)) return true;
    return false;
  }
  /// True where any window that is open has cells in a row of the step.
  static __host__ __device__ constexpr bool any_has_row(int row) {
    for (int age = 0; age < live; ++age)
      if (has_row(age * step_h + row)) return true;
    return false;
  }
  /// Rows of a step that have cells of any window that is open.
  static __host__ __device__ constexpr int used() { return used_before(step_h); }
  static __host__ __device__ constexpr int used_before(int row) {
    int found = 0;
    for (int before = 0; before < row; ++before) found += any_has_row(before);
    return found;
  }
  /// Which row the `count`th with cells is, from the first window's first one on.
  static __host__ __device__ constexpr int used_row(int count) {
    int row = count / used() * step_h;
    for (int left = count % used(); left > 0 || !any_has_row(row % step_h); ++row) left -= any_has_row(row % step_h);
    return row;
  }
};

/// The same where a thread's windows of a row lie apart, so that neighbouring threads have neighbouring windows: loads and
/// stores of single elements are then few lines of memory. None of its windows shares a column with another.
template <int cells_h, int cells_w, int step_h, int step_w, int gap_h, int gap_w>
struct PoolWindowsApart : PoolWindows<cells_h, cells_w, step_h, step_w, gap_h, gap_w> {
  using Beside = PoolWindows<cells_h, cells_w, step_h, step_w, gap_h, gap_w>;
  static constexpr bool apart = true;
  static __host__ __device__ constexpr int columns(int across) { return across * Beside::width; }
  static __host__ __device__ constexpr bool any_has_column(int column, int) {
    return Beside::has_column(column % Beside::width);
  }
};

}  // namespace bolt::portable
