// Takes a memory's pages ahead of their first use, while nothing is computed: a step that touches
// them first waits for each, on virtual machines for milliseconds.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "memory.h"

class Prefault {
 public:
  // The memory must outlive it.
  explicit Prefault(const Memory& memory) : thread_([this, &memory] { populate(memory); }) {}

  ~Prefault() {
    leaving_ = true;
    thread_.join();
  }

  // Nothing is taken while there is one, nor soon after: more steps may follow.
  class Pause {
   public:
    explicit Pause(Prefault& prefault) : prefault_(prefault) { prefault_.busy_ = true; }
    ~Pause() {
      prefault_.recent_ = true;
      prefault_.busy_ = false;
    }

   private:
    Prefault& prefault_;
  };

 private:
  static constexpr std::chrono::milliseconds kQuiet{20};
  static constexpr size_t kMost = 1 << 30;  // bytes; what is never used should not all be taken

  void populate(const Memory& memory) {
    for (size_t at = 0; at < std::min(memory.size(), kMost) && !leaving_;) {
      if (busy_ || recent_.exchange(false))
        std::this_thread::sleep_for(kQuiet);
      else if (memory.populate(at))
        at += Memory::kPage;
      else
        return;  // they are taken when they are touched
    }
  }

  std::atomic<bool> busy_{false}, recent_{false}, leaving_{false};
  std::thread thread_;
};
