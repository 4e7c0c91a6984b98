/* In a pid namespace of its own, where the kernel can be told which number a thread gets: one that has the number of a thread that has ended is another
 * thread, which has another ring, and is on no core yet. Prints what is wrong, and nothing else. */
#include "check.h"

#include <fcntl.h>
#include <sched.h>

struct seen {
	pid_t thread;
	int fd, ring, cores;
};

static void *look(void *out) {
	struct seen *seen = out;
	struct sockaddr_in where = loopback(0);
	cpu_set_t set;
	seen->thread = gettid();
	seen->fd = MUST(socket(AF_INET, SOCK_DGRAM, 0));
	MUST(bind(seen->fd, SA(where), sizeof where));
	CHECK(vma->get_socket_rings_fds(seen->fd, &seen->ring, 1) == 1);
	MUST(sched_getaffinity(0, sizeof set, &set));
	seen->cores = CPU_COUNT(&set);
	return NULL;
}

static struct seen try_in_thread(pid_t number) {
	struct seen seen = {.ring = -1};
	pthread_t thread;
	char text[16];
	int file = MUST(open("/proc/sys/kernel/ns_last_pid", O_WRONLY)), len = snprintf(text, sizeof text, "%d", number - 1);
	CHECK(write(file, text, (size_t)len) == len);
	MUST(close(file));
	CHECK(pthread_create(&thread, NULL, look, &seen) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	return seen;
}

/* (A thread's number is free a moment after the thread was waited for.) */
static struct seen in_thread(pid_t number) {
	for (int tries = 0; tries < 1000; tries++) {
		struct seen seen = try_in_thread(number);
		if (seen.thread == number)
			return seen;
		MUST(close(seen.fd));
		nap(1);
	}
	printf("no thread has the number %d\n", number);
	exit(1);
}

int main(int argc, char **argv) {
	int logic = argc > 1 ? atoi(argv[1]) : 0;
	vma = vma_get_api();
	if (vma == NULL) {
		printf("no table\n");
		return 2;
	}
	/* (The library's own thread has begun by now.) */
	MUST(close(MUST(socket(AF_INET, SOCK_DGRAM, 0))));
	struct seen first = in_thread(700), second = in_thread(700);
	if (logic == 20)
		CHECK(first.ring != second.ring);
	if (logic == 31)
		CHECK(first.cores == 1 && second.cores == 1);
	return wrong;
}
