#include "team.h"

#include "guard.h"

extern "C" {

int team_create(int threads, Team** made) {
  return guarded([&] { *made = new Team(threads); });
}
void team_destroy(Team* team) { delete team; }
}
