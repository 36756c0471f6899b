// A fixed team of threads that goes through one step together: no locks, no wake-ups inside.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

class Team {
 public:
  explicit Team(int size) : size_(size) {
    for (int member = 1; member < size; ++member)
      threads_.emplace_back([this] { follow(); });
  }

  ~Team() {
    leaving_ = true;
    start();
    for (auto& thread : threads_) thread.join();
  }

  int size() const { return size_; }

  // Every member runs `task`; returns when all have. The caller is one of them.
  void run(const std::function<void()>& task) {
    task_ = &task;
    start();
    task();
    barrier();
  }

  // Within `run`, by every member: each index below `count` goes to one of them, whoever is
  // free, in runs of `grain`; returns when all are done.
  template <class Work>
  void share(int count, int grain, const Work& work) {
    for (int first; (first = next_.fetch_add(grain, std::memory_order_relaxed)) < count;)
      for (int i = first; i < first + grain && i < count; ++i) work(i);
    barrier();
  }

 private:
  // Somebody else may need the core that the last one is to finish on: spin briefly, then yield.
  static constexpr int kSpins = 2000;
  static constexpr int kIdleSpins = 20000;

  static void pause() {
#if defined(__x86_64__)
    _mm_pause();
#endif
  }

  void barrier() {
    const unsigned now = passed_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      next_.store(0, std::memory_order_relaxed);
      passed_.store(now + 1, std::memory_order_release);
      return;
    }
    for (int spin = 0; passed_.load(std::memory_order_acquire) == now; ++spin)
      spin < kSpins ? pause() : std::this_thread::yield();
  }

  void start() {
    started_.fetch_add(1, std::memory_order_release);
    started_.notify_all();
  }

  void follow() {
    for (unsigned seen = 0;; ++seen) {
      for (int spin = 0; spin < kIdleSpins && started_.load(std::memory_order_acquire) == seen; ++spin)
        pause();
      started_.wait(seen, std::memory_order_acquire);
      if (leaving_) return;
      (*task_)();
      barrier();
    }
  }

  const int size_;
  std::vector<std::thread> threads_;
  const std::function<void()>* task_ = nullptr;
  alignas(64) std::atomic<unsigned> started_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<unsigned> passed_{0};
  alignas(64) std::atomic<int> next_{0};
  std::atomic<bool> leaving_{false};
};
