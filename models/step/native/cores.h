// Keeps a thread on one core. What else wants that core for a moment then delays its thread, which
// the others help; moved to another core it would share that one with a second of the team.
#pragma once

#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

class Cores {
 public:
#if defined(__linux__)
  // Those that the calling thread may use.
  Cores() {
    CPU_ZERO(&all_);
    if (sched_getaffinity(0, sizeof all_, &all_)) return;
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &all_)) each_.push_back(core);
  }

  int count() const { return static_cast<int>(each_.size()); }

  // The calling thread stays on one of them.
  void stay(int index) const {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(each_[index], &one);
    sched_setaffinity(0, sizeof one, &one);
  }

  // It may use all again.
  void roam() const { sched_setaffinity(0, sizeof all_, &all_); }

 private:
  cpu_set_t all_;
  std::vector<int> each_;
#else
  int count() const { return 0; }
  void stay(int) const {}
  void roam() const {}
#endif
};
