#include "cli/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The size of *address; 0: the name is no address. In an abstract name the leading @ stands for a NUL. */
static socklen_t address_of(const char *name, struct sockaddr_un *address)
{
    size_t size = strlen(name);

    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if ((*name != '/' && *name != '@') || size < 2 || size >= sizeof address->sun_path)
        return 0;
    memcpy(address->sun_path, name, size);
    if (*name == '@')
        address->sun_path[0] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size + (*name == '/'));
}

void notify(const char *state)
{
    const char *name = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address;
    socklen_t size = name ? address_of(name, &address) : 0;
    int fd = size ? socket(AF_UNIX, SOCK_DGRAM, 0) : -1;

    if (fd < 0)
        return;
    (void)sendto(fd, state, strlen(state), MSG_DONTWAIT, (const struct sockaddr *)&address,
                 size); /* a datagram raises no SIGPIPE */
    close(fd);
}
