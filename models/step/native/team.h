// A fixed team of threads that goes through one step together: no locks, no wake-ups inside, and no
// stage waits for a member that has nothing in hand. The end waits for all that are in.
#pragma once

#include <atomic>
#include <chrono>
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
    try {
      for (int member = 1; member < size; ++member)
        threads_.emplace_back([this, member] {
          member_ = member;
          if (settled_) cores_.stay(member);
          follow();
        });
    } catch (...) {  // there is no room for so many
      leave();
      throw;
    }
  }

  ~Team() { leave(); }

  int size() const { return size_; }

  // Within `run`: which of them this is, the caller being 0.
  static int member() { return member_; }

  // Every member that is awake runs `task`, the caller among them; one that wakes late goes to where
  // the others are, or once more through what has passed: so a task does nothing outside `share`.
  // Returns when none is in it any more. `task` may neither throw nor call `run`.
  void run(const std::function<void()>& task) {
    const bool stays = settled_ && cores_.stay(0);
    task_ = &task;
    first_ = stage_.load(std::memory_order_relaxed);
    open_ = true;
    start();
    perform();
    open_ = false;
    // A member counts itself before it looks whether the task is open: none is overlooked.
    wait([this] { return busy_.load() == 0; });
    if (stays) cores_.roam(0);
  }

  // Within `run`, the same calls by every member: each index below `count` goes to one of them;
  // returns when all are done. A member goes through a part of its own, so that it reads memory in
  // one stream, and then helps the others with theirs.
  template <class Work>
  void share(int count, const Work& work) {
    if (count == 0) return;
    const uint32_t stage = at_++;
    if (stage_.load(std::memory_order_acquire) != stage) return;  // passed while this member slept
    offer();
    int done = 0;
    for (int other = 0; other < size_; ++other) {
      const int owner = (member_ + other) % size_, first = begin(count, owner);
      const int size = begin(count, owner + 1) - first;
      for (int i; (i = take(parts_[owner], stage, size)) >= 0; ++done) work(first + i);
    }
    if (done && done_.fetch_add(done, std::memory_order_acq_rel) + done == count) return pass(stage);
    wait([&] { return stage_.load(std::memory_order_acquire) != stage; });
  }

  // The first index of a member's own part; of a part that is not there, where it would be.
  int begin(int count, int member) const {
    return static_cast<int>(static_cast<int64_t>(count) * member / size_);
  }

 private:
  // Somebody else may need the core that the last one is to finish on: spin briefly, then yield.
  static constexpr int kSpins = 2000;
  static constexpr int kIdleSpins = 20000;  // a core that goes to sleep wakes up late
  static constexpr int kOffer = 256;
  static constexpr std::chrono::microseconds kTurn{250};

  static void pause() {
#if defined(__x86_64__)
    _mm_pause();
#endif
  }

  template <class Over>
  static void wait(const Over& over) {
    for (int spin = 0; !over(); ++spin) spin < kSpins ? pause() : std::this_thread::yield();
  }

  // Of what is shared at one stage: how much of a member's own part is taken.
  struct alignas(64) Part {
    std::atomic<uint64_t> taken{0};  // the stage in the upper half
  };

  // Who waits for this core has it now rather than amid an index, which the others would wait for.
  static void offer() {
    const auto now = std::chrono::steady_clock::now();
    if (now - offered_ < kTurn) return;
    offered_ = now;
    std::this_thread::yield();
  }

  // The next index of a part; -1 when there is none, or the stage has passed.
  static int take(Part& part, uint32_t stage, int size) {
    uint64_t taken = part.taken.load(std::memory_order_relaxed);
    for (;;) {
      const int index = static_cast<int>(taken & 0xffffffff);
      if (taken >> 32 != stage || index >= size) return -1;
      if (part.taken.compare_exchange_weak(taken, taken + 1, std::memory_order_relaxed))
        return index;
    }
  }

  // By whoever did the last of a stage.
  void pass(uint32_t stage) {
    done_.store(0, std::memory_order_relaxed);
    for (Part& part : parts_)
      part.taken.store(static_cast<uint64_t>(stage + 1) << 32, std::memory_order_relaxed);
    stage_.store(stage + 1, std::memory_order_release);
  }

  void leave() {
    leaving_ = true;
    start();
    for (auto& thread : threads_) thread.join();
  }

  void start() {
    started_.fetch_add(1);
    started_.notify_all();
  }

  void perform() noexcept {  // an index that is never done would be waited for
    at_ = first_;
    (*task_)();
  }

  void follow() {
    for (unsigned seen = 0;;) {
      for (int spin = 1; spin < kIdleSpins && started_.load() == seen; ++spin)
        spin % kOffer ? pause() : std::this_thread::yield();
      started_.wait(seen);
      seen = started_.load();
      if (leaving_) return;
      busy_.fetch_add(1);
      if (open_.load()) perform();
      busy_.fetch_sub(1);
    }
  }

  static inline thread_local int member_ = 0;
  static inline thread_local uint32_t at_ = 0;  // the next stage of a member
  static inline thread_local std::chrono::steady_clock::time_point offered_{};
  const int size_;
  const Cores cores_;
  const bool settled_;
  std::vector<Part> parts_;
  std::vector<std::thread> threads_;
  const std::function<void()>* task_ = nullptr;
  uint32_t first_ = 0;  // stage of the task
  alignas(64) std::atomic<unsigned> started_{0};
  alignas(64) std::atomic<uint32_t> stage_{0};  // each `share` is one
  alignas(64) std::atomic<int> done_{0};        // of its indices
  alignas(64) std::atomic<int> busy_{0};
  std::atomic<bool> open_{false};
  std::atomic<bool> leaving_{false};
};
