#include "race/record.h"

/* What does not fit is dropped: no race has so many. */
void record_note(struct record *record, enum happening what, uint64_t at)
{
    if (record->count < RECORD_EVENTS)
        record->events[record->count++] = (struct event){at, what};
}

uint64_t record_time(const struct record *record, enum happening what)
{
    for (unsigned i = 0; i < record->count; i++)
        if (record->events[i].what == what)
            return record->events[i].at;
    return 0;
}
