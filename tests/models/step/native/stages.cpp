// What a team promises, tried with members that sleep at every turn: `stages THREADS`.
#include "team.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <system_error>
#include <vector>

namespace {

constexpr int kWidest = 97;

bool sleeps() {
  static thread_local std::minstd_rand random(static_cast<unsigned>(Team::member()) + 1);
  return random() % 199 == 0;
}

void doze() {
  if (sleeps()) usleep(300);
}

// Each stage reads what others wrote in the one before; every index is done once.
bool stages_follow_each_other(Team& team, int stages, int count) {
  std::vector<std::vector<int>> values(stages + 1, std::vector<int>(kWidest, 0));
  team.run([&] {
    for (int stage = 0; stage < stages; ++stage) {
      doze();
      team.share(count, [&](int i) {
        doze();
        values[stage + 1][i] += values[stage][(i + count / 2) % count] + 1;
      });
    }
  });
  for (int i = 0; i < count; ++i)
    if (values[stages][i] != stages) return false;
  return true;
}

// While all but the caller are elsewhere it goes through all stages alone.
bool nobody_waits_for_who_is_away(Team& team) {
  std::atomic<bool> over{false};
  int sum = 0;
  team.run([&] {
    while (Team::member() != 0 && !over) std::this_thread::yield();
    for (int stage = 0; stage < 5; ++stage) team.share(3, [&](int i) { sum += i; });
    over = true;
  });
  return sum == 15;
}

// Threads that there is no room for are an exception, and those that began end.
bool too_many_are_refused() {
  const rlimit little{64 << 20, 64 << 20};
  setrlimit(RLIMIT_AS, &little);
  try {
    Team team(500);
    return false;
  } catch (const std::system_error&) {
    return true;
  }
}

}  // namespace

int main(int, char** arguments) {
  Team team(std::atoi(arguments[1]));
  for (int round = 0; round < 300; ++round) {
    bool followed = false;
    std::thread([&] { followed = stages_follow_each_other(team, round % 40, round % kWidest); }).join();
    if (!followed)
      return std::printf("round %d: an index was missed, done twice or done too early\n", round), 1;
    if (!nobody_waits_for_who_is_away(team)) return std::printf("round %d: a sum\n", round), 1;
  }
  if (!too_many_are_refused()) return std::printf("500 threads in 64 MB\n"), 1;
  return 0;
}
