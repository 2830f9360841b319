/* Shared by the tables: the last error, of each thread. */
#include "engine.h"

#include <stdio.h>

static _Thread_local char message[512];

int peer_fail(const char *what, const char *why)
{
	snprintf(message, sizeof message, "%s: %s", what, why ? why : "no reason given");
	return -1;
}

const char *peer_error(void)
{
	return message;
}

int peer_nothing(void *engine)
{
	(void)engine;
	return 0;
}
