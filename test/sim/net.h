/*
 * The descriptors of the processes, and the network: connections between processes and servers, on which each byte
 * takes some time, and which faults cut, hold up or refuse.
 */
#ifndef SIM_NET_H
#define SIM_NET_H

#include "proc.h"
#include "support/resp.h"

struct sim_server;
struct sim_client; /* a connection, as the server sees it */

struct sim_conn {
    struct sim_conn *next; /* the one made after it */
    struct sim_proc *proc;
    int fd; /* -1: the process has closed it */
    int number;
    struct sim_server *server;
    struct sim_client *client; /* NULL: the server does not have it, or has no more */
    enum { SIM_FRESH, SIM_CONNECTING, SIM_OPEN, SIM_REFUSED, SIM_RESET, SIM_EOF } state;
    struct bytes in; /* what has come for the process */
    struct sim_way {
        struct sim_packet *first, *last; /* that are under way: they come in their order */
        int64_t last_arrival;
    } out, back;
    bool blocking;
    bool shut;
};

#define SIM_NETWORK_MAP(XX)                                                                                            \
    XX(int64_t, delay)         /* ns, each way */                                                                      \
    XX(int64_t, jitter)        /* on top of that, at most */                                                           \
    XX(double, slow_chance)    /* that a message takes long, */                                                        \
    XX(int64_t, slow_most)     /* up to so long */                                                                     \
    XX(double, cut_chance)     /* that the connection ends within a message */                                         \
    XX(double, silence_chance) /* that a direction is silent for a while */                                            \
    XX(int64_t, silence_most)                                                                                          \
    XX(double, stuck_chance) /* that the process sees the connection break, while what it sent is still on its way */  \
    XX(int64_t, stuck_most)                                                                                            \
    XX(double, refuse_chance) /* that a try to connect is refused, */                                                  \
    XX(double, lost_chance)   /* or that nothing answers */                                                            \
    XX(double, short_chance)  /* that send(2) or recv(2) takes fewer bytes than it could */

struct sim_network {
#define SIM_NETWORK_FIELD(type, name) type name;
    SIM_NETWORK_MAP(SIM_NETWORK_FIELD)
    int64_t until; /* all of that; SIM_NEVER: as long as the run lasts */
};
extern struct sim_network sim_network;

/* By the server: sends bytes to the process, or ends the connection. */
void sim_conn_reply(struct sim_conn *conn, const char *bytes, size_t size);
void sim_conn_end(struct sim_conn *conn, bool reset);

void sim_net_cut_all(struct sim_server *server, double chance);
void sim_net_forget(struct sim_server *server, double chance); /* like a firewall that forgets connections */
bool sim_net_can_send(const struct sim_proc *proc, const struct sim_server *server); /* commands, as it is connected */
void sim_net_close_all(struct sim_proc *proc);

#endif
