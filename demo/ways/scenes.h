/* Scenes that any sound way must get through without harm. Its lock needs leases, `still` and `fence`. */
#ifndef DIBS_DEMO_SCENES_H
#define DIBS_DEMO_SCENES_H

#include "ways/way.h"

extern const struct scene scenes_for_sound_ways[];

#endif
