// Threads that lend a hand with a list of tasks if they wake in time: nobody waits for one that
// has not begun, however late the system lets it run.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

class Crew {
 public:
  explicit Crew(int helpers) {
    for (int i = 0; i < helpers; ++i) threads_.emplace_back([this] { help(); });
  }

  Crew(const Crew&) = delete;

  // Each index below `count` goes to whoever is free; returns when all are done.
  void share(int count, const std::function<void(int)>& work) {
    work_ = &work;
    count_ = count;
    next_ = 0;
    open_ = true;
    calls_.fetch_add(1);
    calls_.notify_all();
    take();
    open_ = false;
    // A helper counts itself before it looks whether the list is open: none is overlooked.
    while (busy_.load() != 0) pause();
  }

 private:
  void take() {
    for (int i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) (*work_)(i);
  }

  void help() {
    for (unsigned seen = 0;; seen = calls_.load()) {
      calls_.wait(seen);
      busy_.fetch_add(1);
      if (open_.load()) take();
      busy_.fetch_sub(1);
    }
  }

  static void pause() {
#if defined(__x86_64__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
  }

  std::vector<std::thread> threads_;
  const std::function<void(int)>* work_ = nullptr;
  int count_ = 0;
  alignas(64) std::atomic<unsigned> calls_{0};
  alignas(64) std::atomic<int> next_{0};
  alignas(64) std::atomic<int> busy_{0};
  std::atomic<bool> open_{false};
};
