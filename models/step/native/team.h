// A fixed team of threads that goes through one step together: no locks, no wake-ups inside.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "cores.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

class Team {
 public:
  // Of as many members as there are cores, each stays on one.
  explicit Team(int size) : size_(size), settled_(size == cores_.count()), parts_(size) {
    for (int member = 1; member < size; ++member)
      threads_.emplace_back([this, member] {
        member_ = member;
        if (settled_) cores_.stay(member);
        follow();
      });
  }

  ~Team() {
    leaving_ = true;
    start(kTask);
    for (auto& thread : threads_) thread.join();
  }

  int size() const { return size_; }

  // Within `run`: which of them this is, the caller being 0.
  static int member() { return member_; }

  // Every member runs `task`, which may not throw: the others would wait for it. Returns when all
  // have; the caller is one of them.
  void run(const std::function<void()>& task) {
    const bool stays = settled_ && cores_.stay(0);
    task_ = &task;
    start(kTask);
    task();
    barrier();
    if (stays) cores_.roam(0);
  }

  // Within `run`, by every member: each index below `count` goes to one of them; returns when all
  // are done. A member goes through a part of its own, so that it reads memory in one stream, and
  // then helps the others with theirs.
  template <class Work>
  void share(int count, const Work& work) {
    for (int other = 0; other < size_; ++other) {
      const int owner = (member_ + other) % size_, first = begin(count, owner);
      const int mine = begin(count, owner + 1) - first;
      std::atomic<int>& taken = parts_[owner].taken;
      while (taken.load(std::memory_order_relaxed) < mine) {
        const int i = taken.fetch_add(1, std::memory_order_relaxed);
        if (i < mine) work(first + i);
      }
    }
    barrier();
  }

  // The first index of a member's own part; of a part that is not there, where it would be.
  int begin(int count, int member) const {
    return static_cast<int>(static_cast<int64_t>(count) * member / size_);
  }

  // Outside `run`: each index below `count` goes to whoever is free. Waits for no member that wakes
  // only when there is nothing left.
  void lend(int count, const std::function<void(int)>& work) {
    listed_ = &work;
    count_ = count;
    open_ = true;
    start(kList);
    take();
    open_ = false;
    // A member counts itself before it looks whether the list is open: none is overlooked.
    while (busy_.load() != 0) pause();
    next_ = 0;
  }

 private:
  // Somebody else may need the core that the last one is to finish on: spin briefly, then yield.
  static constexpr int kSpins = 2000;
  static constexpr int kIdleSpins = 20000;
  static constexpr unsigned kTask = 0, kList = 1;

  static void pause() {
#if defined(__x86_64__)
    _mm_pause();
#endif
  }

  void barrier() {
    const unsigned now = passed_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      for (Part& part : parts_) part.taken.store(0, std::memory_order_relaxed);
      passed_.store(now + 1, std::memory_order_release);
      return;
    }
    for (int spin = 0; passed_.load(std::memory_order_acquire) == now; ++spin)
      spin < kSpins ? pause() : std::this_thread::yield();
  }

  // What is to be done is told with the count of starts, in one number.
  void start(unsigned kind) {
    started_.store((started_.load() | 1) + 1 + kind);
    started_.notify_all();
  }

  void take() {
    for (int i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) (*listed_)(i);
  }

  void follow() {
    for (unsigned seen = 0;;) {
      for (int spin = 0; spin < kIdleSpins && started_.load() == seen; ++spin) pause();
      started_.wait(seen);
      seen = started_.load();
      if (leaving_) return;
      seen & kList ? assist() : obey();
    }
  }

  void obey() {
    (*task_)();
    barrier();
  }

  void assist() {
    busy_.fetch_add(1);
    if (open_.load()) take();
    busy_.fetch_sub(1);
  }

  // Of what is shared now: how much of a member's own part is taken.
  struct alignas(64) Part {
    std::atomic<int> taken{0};
  };

  static inline thread_local int member_ = 0;
  const int size_;
  const Cores cores_;
  const bool settled_;
  std::vector<Part> parts_;
  std::vector<std::thread> threads_;
  const std::function<void()>* task_ = nullptr;
  const std::function<void(int)>* listed_ = nullptr;
  int count_ = 0;
  alignas(64) std::atomic<unsigned> started_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<unsigned> passed_{0};
  alignas(64) std::atomic<int> next_{0};
  alignas(64) std::atomic<int> busy_{0};
  std::atomic<bool> open_{false};
  std::atomic<bool> leaving_{false};
};
