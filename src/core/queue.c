#include "core/queue.h"

void dibs__queue_add(struct dibs__queue *queue, struct dibs__waiter *waiter)
{
    DIBS__REQUIRE(!waiter->queue);
    DIBS__REQUIRE(!queue->first == !queue->last);
    waiter->queue = queue;
    waiter->next = NULL;
    waiter->previous = queue->last;
    if (queue->last)
        queue->last->next = waiter;
    else
        queue->first = waiter;
    queue->last = waiter;
}

void dibs__queue_remove(struct dibs__waiter *waiter)
{
    struct dibs__queue *queue = waiter->queue;

    if (!queue)
        return;
    DIBS__REQUIRE(queue->first && queue->last);
    if (waiter->previous)
        waiter->previous->next = waiter->next;
    else
        queue->first = waiter->next;
    if (waiter->next)
        waiter->next->previous = waiter->previous;
    else
        queue->last = waiter->previous;
    waiter->queue = NULL;
}
