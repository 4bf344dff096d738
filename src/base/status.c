#include "dibs.h"

static const struct {
    const char *name, *text;
} statuses[] = {
#define STATUS_ROW(name, text) {"DIBS_" #name, text},
    DIBS_STATUS_MAP(STATUS_ROW)
#undef STATUS_ROW
};

static bool is_status(dibs_status status)
{
    return (unsigned)status < sizeof statuses / sizeof statuses[0];
}

const char *dibs_status_name(dibs_status status)
{
    return is_status(status) ? statuses[status].name : "DIBS_?";
}

const char *dibs_status_text(dibs_status status)
{
    return is_status(status) ? statuses[status].text : "This is no status of dibs.";
}
