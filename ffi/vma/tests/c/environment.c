/*
 * Talks to itself over TCP, so many times one after the other: what any program does. Prints what fails.
 *
 *	environment TIMES [FREE]
 *
 * FREE: descriptors that it leaves free before it begins, of 64.
 */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static void fill(int left)
{
	struct rlimit limit = {64, 64};
	int last = -1, fd;

	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		perror("setrlimit");
	while ((fd = dup(0)) >= 0)
		last = fd;
	while (left-- > 0)
		close(last--);
}

static int talk(void)
{
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof here;
	char got[6] = "";
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	if (listener < 0 || bind(listener, (struct sockaddr *)&here, len) < 0 || listen(listener, 1) < 0 ||
	    getsockname(listener, (struct sockaddr *)&here, &len) < 0)
		return perror("listener"), -1;
	int client = socket(AF_INET, SOCK_STREAM, 0);

	if (client < 0 || connect(client, (struct sockaddr *)&here, len) < 0)
		return perror("client"), -1;
	int server = accept(listener, NULL, NULL);

	if (server < 0 || write(client, "hello", 5) != 5 || read(server, got, 5) != 5 || strcmp(got, "hello") != 0)
		return perror("server"), -1;
	close(server);
	close(client);
	close(listener);
	return 0;
}

int main(int argc, char **argv)
{
	int times = argc > 1 ? atoi(argv[1]) : 1;

	if (argc > 2)
		fill(atoi(argv[2]));
	while (times-- > 0)
		if (talk() < 0)
			return 1;
	return 0;
}
