use super::*;

fn readable(fd: RawFd, timeout: Duration) -> bool {
    let mut fds = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
    ppoll(&mut fds, Some(timeout), None).expect("ppoll") == 1 && fds[0].revents == libc::POLLIN
}

#[test]
fn an_eventfd_is_readable_between_signal_and_clear() {
    let event = EventFd::new().expect("eventfd");
    assert!(!readable(event.fd(), Duration::ZERO));
    event.signal();
    event.signal();
    assert!(readable(event.fd(), Duration::ZERO));
    event.clear();
    assert!(!readable(event.fd(), Duration::ZERO));
}

#[test]
fn internal_descriptors_have_high_numbers() {
    assert!(EventFd::new().expect("eventfd").fd() >= INTERNAL_FROM);
}

#[test]
fn a_sleeper_is_woken_by_another_thread() {
    let event = EventFd::new().expect("eventfd");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(5));
            event.signal();
        });
        assert!(readable(event.fd(), Duration::from_secs(20)));
    });
}

#[test]
fn epoll_waits_below_a_millisecond() {
    // SAFETY: no memory is passed.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    let event = EventFd::new().expect("eventfd");
    epoll_ctl(epoll, libc::EPOLL_CTL_ADD, event.fd(), Some(libc::epoll_event { events: 1, u64: 42 })).expect("add");
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
    assert_eq!(epoll_wait(epoll, &mut events, Some(Duration::from_micros(300)), None).expect("wait"), 0);
    event.signal();
    assert_eq!(epoll_wait(epoll, &mut events, None, None).expect("wait"), 1);
    assert_eq!({ events[0].u64 }, 42);
    syscall::close(epoll);
    assert_eq!(epoll_ctl(epoll, libc::EPOLL_CTL_DEL, 0, None).expect_err("closed").raw_os_error(), Some(libc::EBADF));
}
