/* Scenes that several ways have. */
#ifndef DIBS_DEMO_SCENES_H
#define DIBS_DEMO_SCENES_H

#include "ways/way.h"

/* What any sound way must get through without harm. Its lock needs leases, `still` and `fence`. */
extern const struct scene scenes_for_sound_ways[];

/* Fewer than six are left, of one thing. The first is for ways without a lock. */
extern const struct scene scenes_six_at_once[], scenes_six_in_turn[];

#endif
