//! libmlx5's own data path: queue pairs for raw packets, whose sends, receives and completions are the library's.

use core::ptr::null_mut;

use rdma_core_sys as sys;
use rdma_core_sys::Ibverbs;
use ringway_stack::device::MacAddr;

/// Receives of a queue, all of which are posted when its frames have been taken.
const RECEIVES: usize = 256;
/// Bytes of a receive, and of what a batch is sent from.
const BUFFER: usize = 2048;
const SENDS: usize = 64;
/// In what a completion says: it is of a batch's last entry.
const LAST: u64 = 1 << 63;

/// One send.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) frame: Vec<u8>,
    /// Bytes of it that our driver gets as its head, and those of headers of one that the card cuts.
    pub(crate) head: usize,
    /// Where the rest is cut in pieces: the first is `head`, the last the frame's length.
    pub(crate) cuts: Vec<usize>,
    pub(crate) checksum: bool,
    /// The card cuts it in segments of so many bytes.
    pub(crate) mss: Option<u16>,
    /// The library is asked to write it in line.
    pub(crate) in_line: bool,
    /// What its completion says; zero: there is none.
    pub(crate) cookie: u64,
}

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_good: bool,
}

struct Queue {
    cq: *mut sys::ibv_cq,
    qp: *mut sys::ibv_qp,
    flows: Vec<*mut sys::ibv_flow>,
    memory: Vec<u8>,
    mr: *mut sys::ibv_mr,
    /// Batches that were posted, and not completed yet.
    batches: usize,
}

/// Two contexts: one that sends, one that receives. (What a context sends it does not hear.)
pub(crate) struct Library {
    verbs: &'static Ibverbs,
    contexts: [(*mut sys::ibv_context, *mut sys::ibv_pd); 2],
    from: Vec<Queue>,
    to: Vec<Queue>,
}

impl Library {
    /// So many queues each way.
    pub(crate) fn new(queues: usize) -> Self {
        let verbs = Ibverbs::get().expect("libibverbs");
        let open = || {
            // SAFETY: objects are made by the library and checked.
            unsafe {
                let list = verbs.ibv_get_device_list(null_mut());
                let context = verbs.ibv_open_device(*list);
                verbs.ibv_free_device_list(list);
                assert!(!context.is_null());
                (context, verbs.ibv_alloc_pd(context))
            }
        };
        let contexts = [open(), open()];
        let [from, to] = [0, 1].map(|at| (0..queues).map(|_| Queue::new(verbs, contexts[at], at == 1)).collect::<Vec<_>>());
        Self { verbs, contexts, from, to }
    }

    /// Begins with new send queues. (Where the headers of a large send go around the end of its queue, libmlx5 1.24.44 leaves out the entry that refers to the payload: the card
    /// sends what an older entry has left there. So no queue here goes around.)
    pub(crate) fn renew(&mut self) {
        for queue in &mut self.from {
            let new = Queue::new(self.verbs, self.contexts[0], false);
            core::mem::replace(queue, new).end(self.verbs);
        }
    }

    /// Has the receiving queues a rule each for UDP and TCP, by ports from that one on.
    pub(crate) fn steer(&mut self, mac: MacAddr, port: u16) {
        for (number, queue) in self.to.iter_mut().enumerate() {
            queue.flows =
                [sys::IBV_FLOW_SPEC_UDP, sys::IBV_FLOW_SPEC_TCP].map(|kind| rule(queue.qp, mac, kind, port + number as u16)).to_vec();
            (0..RECEIVES).for_each(|at| queue.post_receive(at));
        }
    }

    /// Has the card do what was rung for: any command does.
    pub(crate) fn work(&self) {
        let mut attr = sys::ibv_port_attr::default();
        for (context, _) in self.contexts {
            // SAFETY: the context is open, and the attribute writable.
            (0..2).for_each(|_| unsafe { assert_eq!(self.verbs.ibv_query_port(context, 1, &raw mut attr), 0) });
        }
    }

    /// Posts a batch, as one list.
    pub(crate) fn post(&mut self, queue: usize, works: &[Work]) {
        let queue = &mut self.from[queue];
        assert!(works.len() <= SENDS);
        let mut pieces: Vec<Vec<sys::ibv_sge>> = Vec::new();
        for (at, work) in works.iter().enumerate() {
            let base = at * BUFFER;
            queue.memory[base..base + work.frame.len()].copy_from_slice(&work.frame);
            // (Headers of what the card cuts are not in a piece.)
            let begin = if work.mss.is_some() { None } else { Some(0) };
            let starts: Vec<usize> = begin.into_iter().chain(work.cuts.iter().copied()).collect();
            let piece = |pair: &[usize]| sys::ibv_sge {
                addr: queue.memory[base + pair[0]..].as_ptr().addr() as u64,
                length: (pair[1] - pair[0]) as u32,
                // SAFETY: the region is there.
                lkey: unsafe { (*queue.mr).lkey },
            };
            pieces.push(starts.windows(2).map(piece).collect());
        }
        let mut requests: Vec<sys::ibv_send_wr> = works
            .iter()
            .zip(&mut pieces)
            .enumerate()
            .map(|(at, (work, pieces))| request(work, pieces, &queue.memory[at * BUFFER..]))
            .collect();
        for at in 1..requests.len() {
            requests[at - 1].next = &raw mut requests[at];
        }
        // (A completion is of all before it: so that entries are free again, the last one asks for one. It says zero if nobody wants to know.)
        let last = requests.last_mut().expect("a batch");
        last.send_flags |= sys::IBV_SEND_SIGNALED;
        last.wr_id |= LAST;
        let mut bad = null_mut();
        // SAFETY: the queue pair is there, and so is what the requests refer to; it has room for a batch.
        assert_eq!(unsafe { sys::ibv_post_send(queue.qp, requests.as_mut_ptr(), &raw mut bad) }, 0);
        queue.batches += 1;
    }

    /// Whether a batch is not completed yet.
    pub(crate) fn is_busy(&self, queue: usize) -> bool {
        self.from[queue].batches > 0
    }

    /// Takes the completions: what each says, and whether it says that all is well.
    pub(crate) fn reap(&mut self, queue: usize, told: &mut Vec<(u64, bool)>) {
        let mut completion = sys::ibv_wc::default();
        // SAFETY: the queue is there, and there is room for one.
        while unsafe { sys::ibv_poll_cq(self.from[queue].cq, 1, &raw mut completion) } == 1 {
            let cookie = completion.wr_id & !LAST;
            self.from[queue].batches -= usize::from(completion.wr_id & LAST != 0);
            if cookie > 0 || completion.status != sys::IBV_WC_SUCCESS {
                told.push((cookie, completion.status == sys::IBV_WC_SUCCESS));
            }
        }
    }

    /// Takes all that has come, by queue.
    pub(crate) fn receive(&mut self, mut take: impl FnMut(usize, Received)) {
        for (number, queue) in self.to.iter_mut().enumerate() {
            let mut completion = sys::ibv_wc::default();
            // SAFETY: the queue is there, and there is room for one.
            while unsafe { sys::ibv_poll_cq(queue.cq, 1, &raw mut completion) } == 1 {
                assert_eq!(completion.status, sys::IBV_WC_SUCCESS);
                let at = completion.wr_id as usize;
                let bytes = queue.memory[at * BUFFER..][..completion.byte_len as usize].to_vec();
                take(number, Received { bytes, is_good: completion.wc_flags & sys::IBV_WC_IP_CSUM_OK != 0 });
                queue.post_receive(at);
            }
        }
    }
}

/// A send, of these pieces. `headers`: where its frame lies.
fn request(work: &Work, pieces: &mut [sys::ibv_sge], headers: &[u8]) -> sys::ibv_send_wr {
    // (The queue pairs take so many bytes in line.)
    let in_line = work.in_line && work.mss.is_none() && work.frame.len() <= 200;
    let flag = |holds: bool, flag| if holds { flag } else { 0 };
    let flags =
        flag(work.cookie > 0, sys::IBV_SEND_SIGNALED) | flag(work.checksum, sys::IBV_SEND_IP_CSUM) | flag(in_line, sys::IBV_SEND_INLINE);
    let mut request = sys::ibv_send_wr {
        wr_id: work.cookie,
        sg_list: pieces.as_mut_ptr(),
        num_sge: pieces.len() as i32,
        opcode: sys::IBV_WR_SEND,
        send_flags: flags,
        ..Default::default()
    };
    if let Some(mss) = work.mss {
        request.opcode = sys::IBV_WR_TSO;
        request.tail =
            sys::ibv_send_wr_tail { tso: sys::ibv_send_wr_tso { hdr: headers.as_ptr().cast_mut().cast(), hdr_sz: work.head as u16, mss } };
    }
    request
}

impl Queue {
    fn new(verbs: &Ibverbs, (context, pd): (*mut sys::ibv_context, *mut sys::ibv_pd), receives: bool) -> Self {
        let mut memory = vec![0u8; if receives { RECEIVES } else { SENDS } * BUFFER];
        // SAFETY: objects are made by the library and checked; the memory is there as long as the value.
        unsafe {
            let mr = verbs.ibv_reg_mr(pd, memory.as_mut_ptr().cast(), memory.len(), sys::IBV_ACCESS_LOCAL_WRITE as i32);
            let cq = verbs.ibv_create_cq(context, 2 * RECEIVES as i32, null_mut(), null_mut(), 0);
            let cap = sys::ibv_qp_cap {
                max_send_wr: 2 * SENDS as u32,
                max_recv_wr: RECEIVES as u32,
                max_send_sge: 6,
                max_recv_sge: 1,
                max_inline_data: 200,
            };
            let mut init = sys::ibv_qp_init_attr_ex {
                send_cq: cq,
                recv_cq: cq,
                cap,
                qp_type: sys::IBV_QPT_RAW_PACKET,
                comp_mask: sys::IBV_QP_INIT_ATTR_PD | sys::IBV_QP_INIT_ATTR_MAX_TSO_HEADER,
                pd,
                max_tso_header: 64,
                ..Default::default()
            };
            let qp = verbs.ibv_create_qp_ex(context, &raw mut init);
            assert!(!qp.is_null() && !mr.is_null() && !cq.is_null());
            for (state, mask) in [(sys::IBV_QPS_INIT, sys::IBV_QP_PORT), (sys::IBV_QPS_RTR, 0), (sys::IBV_QPS_RTS, 0)] {
                let mut attr = sys::ibv_qp_attr { qp_state: state, port_num: 1, ..Default::default() };
                assert_eq!(verbs.ibv_modify_qp(qp, &raw mut attr, (sys::IBV_QP_STATE | mask).cast_signed()), 0);
            }
            Self { cq, qp, flows: Vec::new(), memory, mr, batches: 0 }
        }
    }

    fn end(self, verbs: &Ibverbs) {
        // SAFETY: nothing uses them any more.
        unsafe {
            self.flows.into_iter().for_each(|flow| assert_eq!(sys::ibv_destroy_flow(flow), 0));
            assert_eq!((verbs.ibv_destroy_qp(self.qp), verbs.ibv_destroy_cq(self.cq), verbs.ibv_dereg_mr(self.mr)), (0, 0, 0));
        }
    }

    fn post_receive(&mut self, at: usize) {
        // SAFETY: the region is there.
        let lkey = unsafe { (*self.mr).lkey };
        let mut piece = sys::ibv_sge { addr: self.memory[at * BUFFER..].as_ptr().addr() as u64, length: BUFFER as u32, lkey };
        let mut request = sys::ibv_recv_wr { wr_id: at as u64, next: null_mut(), sg_list: &raw mut piece, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: the queue pair is there, and so is what the request refers to.
        assert_eq!(unsafe { sys::ibv_post_recv(self.qp, &raw mut request, &raw mut bad) }, 0);
    }
}

/// A rule for what goes to that Ethernet address and port, by UDP or TCP.
fn rule(qp: *mut sys::ibv_qp, mac: MacAddr, kind: u32, port: u16) -> *mut sys::ibv_flow {
    #[repr(C)]
    struct Rule {
        attr: sys::ibv_flow_attr,
        ethernet: sys::ibv_flow_spec_eth,
        ip: sys::ibv_flow_spec_ipv4,
        transport: sys::ibv_flow_spec_tcp_udp,
    }
    let ethernet = |dst_mac, ether_type| sys::ibv_flow_eth_filter { dst_mac, src_mac: [0; 6], ether_type, vlan_tag: 0 };
    let ports = |dst_port: u16| sys::ibv_flow_tcp_udp_filter { dst_port, src_port: 0 };
    let mut rule = Rule {
        attr: sys::ibv_flow_attr {
            comp_mask: 0,
            r#type: sys::IBV_FLOW_ATTR_NORMAL,
            size: size_of::<Rule>() as u16,
            priority: 0,
            num_of_specs: 3,
            port: 1,
            flags: 0,
        },
        ethernet: sys::ibv_flow_spec_eth {
            r#type: sys::IBV_FLOW_SPEC_ETH,
            size: size_of::<sys::ibv_flow_spec_eth>() as u16,
            val: ethernet(mac.0, 0x0800_u16.to_be()),
            mask: ethernet([0xff; 6], 0xffff),
        },
        ip: sys::ibv_flow_spec_ipv4 {
            r#type: sys::IBV_FLOW_SPEC_IPV4,
            size: size_of::<sys::ibv_flow_spec_ipv4>() as u16,
            val: sys::ibv_flow_ipv4_filter { src_ip: 0, dst_ip: 0 },
            mask: sys::ibv_flow_ipv4_filter { src_ip: 0, dst_ip: 0 },
        },
        transport: sys::ibv_flow_spec_tcp_udp {
            r#type: kind,
            size: size_of::<sys::ibv_flow_spec_tcp_udp>() as u16,
            val: ports(port.to_be()),
            mask: ports(0xffff),
        },
    };
    // SAFETY: the queue pair is there, and the rule as long as it says.
    let flow = unsafe { sys::ibv_create_flow(qp, (&raw mut rule).cast()) };
    assert!(!flow.is_null(), "a rule: {}", std::io::Error::last_os_error());
    flow
}

impl Drop for Library {
    fn drop(&mut self) {
        self.from.drain(..).chain(self.to.drain(..)).for_each(|queue| queue.end(self.verbs));
        for (context, pd) in self.contexts {
            // SAFETY: as above.
            unsafe { assert_eq!((self.verbs.ibv_dealloc_pd(pd), self.verbs.ibv_close_device(context)), (0, 0)) };
        }
    }
}
