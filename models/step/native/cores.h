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

  // The calling thread stays on one of them; whether it does: cores that were changed since, by
  // whoever runs this, are left as they are.
  bool stay(int index) const { return move(all_, only(index)); }

  // What stayed may use all again.
  void roam(int index) const { move(only(index), all_); }

 private:
  cpu_set_t only(int index) const {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(each_[index], &one);
    return one;
  }

  static bool move(const cpu_set_t& from, const cpu_set_t& to) {
    cpu_set_t now;
    CPU_ZERO(&now);
    return sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&now, &from) &&
           sched_setaffinity(0, sizeof to, &to) == 0;
  }

  cpu_set_t all_;
  std::vector<int> each_;
#else
  int count() const { return 0; }
  bool stay(int) const { return false; }
  void roam(int) const {}
#endif
};
