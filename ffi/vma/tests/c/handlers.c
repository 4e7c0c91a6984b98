/*
 * A handler that does what signal-safety(7) lets it: makes sockets, binds, connects, sends and closes them, in the middle of a program that does
 * the same. Prints what is wrong.
 */
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { SIGNALS = 4000, EVERY_US = 200 };

static struct sockaddr_in here;
static volatile sig_atomic_t signals;

static void work(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in elsewhere = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0xc6336401)};
	int fd = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);

	bind(fd, (struct sockaddr *)&any, sizeof any);
	connect(fd, (struct sockaddr *)&here, sizeof here);
	send(fd, "x", 1, MSG_DONTWAIT);
	/* An address of documentation's (RFC 5737), which nothing is sent to: whether it is this machine's has to be found out. */
	for (int i = 0; i < 10; i++)
		connect(other, (struct sockaddr *)&elsewhere, sizeof elsewhere);
	close(other);
	close(fd);
}

static void handler(int signal)
{
	int saved = errno;

	(void)signal;
	work();
	/* (Where this takes longer than the time between two, the program would not come to an end.) */
	if (++signals >= SIGNALS)
		setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
	errno = saved;
}

int main(void)
{
	socklen_t len = sizeof here;
	int receiver = socket(AF_INET, SOCK_DGRAM, 0);
	struct sigaction action = {.sa_handler = handler};
	struct itimerval timer = {{0, EVERY_US}, {0, EVERY_US}};
	char got[8];

	here.sin_family = AF_INET;
	here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(receiver, (struct sockaddr *)&here, len) < 0 || getsockname(receiver, (struct sockaddr *)&here, &len) < 0 ||
	    sigaction(SIGALRM, &action, NULL) < 0 || setitimer(ITIMER_REAL, &timer, NULL) < 0) {
		perror("handlers");
		return 1;
	}
	while (signals < SIGNALS) {
		work();
		while (recv(receiver, got, sizeof got, MSG_DONTWAIT) >= 0)
			;
	}
	return 0;
}
