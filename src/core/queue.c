#include "core/queue.h"

void dibs__queue_add(struct dibs__queue *queue, struct dibs__waiter *waiter)
{
    DIBS__REQUIRE(!waiter->queue);
    waiter->queue = queue;
    waiter->next = NULL;
    if (queue->first) {
        waiter->previous = queue->first->previous;
        waiter->previous->next = waiter;
    } else {
        queue->first = waiter;
    }
    queue->first->previous = waiter;
}

void dibs__queue_remove(struct dibs__waiter *waiter)
{
    struct dibs__queue *queue = waiter->queue;

    if (!queue)
        return;
    DIBS__REQUIRE(queue->first);
    if (waiter == queue->first)
        queue->first = waiter->next;
    else
        waiter->previous->next = waiter->next;
    if (waiter->next)
        waiter->next->previous = waiter->previous;
    else if (queue->first)
        queue->first->previous = waiter->previous;
    waiter->queue = NULL;
}
