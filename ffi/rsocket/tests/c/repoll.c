/* repoll_create, repoll_ctl, repoll_wait. */
#include "check.h"
#include <pthread.h>

static int instance;

static void control(int operation, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.fd = fd};
	CHECK(repoll_ctl(instance, operation, fd, &event) == 0);
}

/* Adds to what another thread waits for. */
static void *adds(void *fd)
{
	usleep(100000);
	control(EPOLL_CTL_ADD, (int)(intptr_t)fd, EPOLLIN);
	return NULL;
}

static void errors(int fd)
{
	struct epoll_event event = {.events = EPOLLIN};
	FAILS(repoll_create(7), EINVAL);
	FAILS(repoll_ctl(99, EPOLL_CTL_ADD, fd, &event), EBADF);
	FAILS(repoll_ctl(instance, EPOLL_CTL_ADD, 99, &event), EBADF);
	FAILS(repoll_ctl(instance, EPOLL_CTL_ADD, instance, &event), EINVAL);
	FAILS(repoll_ctl(instance, EPOLL_CTL_MOD, fd, &event), ENOENT);
	FAILS(repoll_ctl(instance, EPOLL_CTL_DEL, fd, &event), ENOENT);
	FAILS(repoll_ctl(instance, EPOLL_CTL_ADD, fd, NULL), EFAULT);
	FAILS(repoll_ctl(instance, 9, fd, &event), EINVAL);
	event.events = EPOLLIN | EPOLLET;
	FAILS(repoll_ctl(instance, EPOLL_CTL_ADD, fd, &event), EINVAL);
	FAILS(repoll_wait(instance, &event, 0, 0), EINVAL);
	FAILS(repoll_wait(instance, NULL, 1, 0), EFAULT);
	FAILS(repoll_wait(99, &event, 1, 0), EBADF);
	control(EPOLL_CTL_ADD, fd, EPOLLIN);
	event.events = EPOLLIN;
	FAILS(repoll_ctl(instance, EPOLL_CTL_ADD, fd, &event), EEXIST);
	control(EPOLL_CTL_DEL, fd, 0);
}

int main(void)
{
	struct epoll_event events[4];
	instance = repoll_create(EPOLL_CLOEXEC);
	CHECK(instance >= 0);
	double began = seconds();
	CHECK(repoll_wait(instance, events, 4, 50) == 0 && seconds() - began >= 0.05);

	int door = listener();
	errors(door);
	control(EPOLL_CTL_ADD, door, EPOLLIN);
	int fd = connected(port_of(door));
	CHECK(repoll_wait(instance, events, 4, 10000) == 1 && events[0].data.fd == door && events[0].events == EPOLLIN);
	int accepted = raccept(door, NULL, NULL);
	CHECK(accepted >= 0);
	control(EPOLL_CTL_ADD, accepted, EPOLLIN | EPOLLOUT);
	CHECK(repoll_wait(instance, events, 4, -1) == 1 && events[0].data.fd == accepted && events[0].events == EPOLLOUT);
	control(EPOLL_CTL_MOD, accepted, EPOLLIN | EPOLLRDHUP);
	CHECK(repoll_wait(instance, events, 4, 0) == 0);

	/* Other descriptors, one after the other where there is room for one alone. */
	int ends[2];
	CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
	control(EPOLL_CTL_ADD, ends[0], EPOLLIN);
	CHECK(rsend(fd, "y", 1, 0) == 1);
	struct pollfd both[] = {{.fd = accepted, .events = POLLIN}};
	CHECK(rpoll(both, 1, 10000) == 1);
	CHECK(repoll_wait(instance, events, 4, 0) == 2);
	CHECK(repoll_wait(instance, events, 1, 0) == 1 && repoll_wait(instance, events + 1, 1, 0) == 1);
	CHECK(events[0].data.fd != events[1].data.fd);
	/* Level-triggered. */
	char byte;
	CHECK(rrecv(accepted, &byte, 1, 0) == 1 && read(ends[0], &byte, 1) == 1);
	CHECK(repoll_wait(instance, events, 4, 0) == 0);

	/* What is closed is waited for no more. */
	close(ends[0]);
	CHECK(repoll_wait(instance, events, 4, 10) == 0);
	CHECK(rshutdown(fd, SHUT_WR) == 0);
	CHECK(repoll_wait(instance, events, 4, 10000) == 1 && events[0].data.fd == accepted && events[0].events == (EPOLLIN | EPOLLRDHUP));
	CHECK(rclose(accepted) == 0);
	CHECK(repoll_wait(instance, events, 4, 10) == 0);

	/* What is added while another thread waits. */
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, adds, (void *)(intptr_t)fd) == 0);
	CHECK(repoll_wait(instance, events, 4, 20000) == 1 && events[0].data.fd == fd && (events[0].events & EPOLLHUP));
	pthread_join(thread, NULL);
	CHECK(rclose(instance) == 0);
	FAILS(repoll_wait(instance, events, 4, 0), EBADF);
	return 0;
}
