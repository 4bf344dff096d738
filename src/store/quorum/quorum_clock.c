#include "store/quorum/quorum_clock.h"

#include "base/clock.h"

#define NS_PER_US (DIBS__NS_PER_MS / 1000)

/* How far the clocks may have drifted apart since then. */
static int64_t apart_us(int64_t since, int64_t now)
{
    return now > since ? (now - since) / NS_PER_US / DIBS__CLOCK_PART : 0;
}

/* The bounds widen with time and narrow with each answer, so several small steps in the same direction add up. */
int dibs__clock_bounds_note(struct dibs__clock_bounds *bounds, int64_t sent_at, int64_t read_at, int64_t server_us)
{
    int64_t least_us = server_us - read_at / NS_PER_US - 1, most_us = server_us - sent_at / NS_PER_US + 1;
    int64_t known_least_us = bounds->least_us - apart_us(bounds->least_at, read_at);
    int64_t known_most_us = bounds->most_us + apart_us(bounds->most_at, read_at);
    bool is_known = bounds->most_at != 0;
    int step = 0;

    if (is_known && least_us > known_most_us + DIBS__CLOCK_SET_US)
        step = 1;
    else if (is_known && most_us < known_least_us - DIBS__CLOCK_SET_US)
        step = -1;
    if (!is_known || step != 0 || least_us > known_least_us) {
        bounds->least_us = least_us;
        bounds->least_at = sent_at;
    }
    if (!is_known || step != 0 || most_us < known_most_us) {
        bounds->most_us = most_us;
        bounds->most_at = sent_at;
    }
    return step;
}
