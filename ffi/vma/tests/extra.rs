//! The VMA Extra API from the outside: C programs, compiled with the header that is installed, with the library preloaded.

#[path = "extra/programs.rs"]
mod programs;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use programs::{compile, compile_with, finds_nothing_wrong, library, run, says_nothing};

/// Sizes, places and values as the published libvma 9.8.84 has them (measured with pahole), but for what [`OURS`] adds.
const PUBLISHED: &str = "\
struct vma_api_t.register_recv_callback 0
struct vma_api_t.recvfrom_zcopy 8
struct vma_api_t.free_packets 16
struct vma_api_t.add_conf_rule 24
struct vma_api_t.thread_offload 32
struct vma_api_t.socketxtreme_poll 40
struct vma_api_t.get_socket_rings_num 48
struct vma_api_t.get_socket_rings_fds 56
struct vma_api_t.get_socket_tx_ring_fd 64
struct vma_api_t.socketxtreme_free_vma_packets 72
struct vma_api_t.socketxtreme_ref_vma_buff 80
struct vma_api_t.socketxtreme_free_vma_buff 88
struct vma_api_t.dump_fd_stats 96
struct vma_api_t.vma_add_ring_profile 104
struct vma_api_t.get_socket_network_header 112
struct vma_api_t.get_ring_direct_descriptors 120
struct vma_api_t.register_memory_on_ring 128
struct vma_api_t.deregister_memory_on_ring 136
struct vma_api_t.vma_modify_ring 144
struct vma_api_t.vma_extra_supported_mask 152
struct vma_api_t.ioctl 160
struct vma_cmsg_ioctl_user_alloc_t 17
struct vma_cmsg_ioctl_user_alloc_t.memalloc 1
struct vma_cmsg_ioctl_user_alloc_t.memfree 9
struct vma_buff_t 24
struct vma_buff_t.payload 8
struct vma_buff_t.len 16
struct vma_packet_desc_t 40
struct vma_packet_desc_t.total_len 8
struct vma_packet_desc_t.buff_lst 16
struct vma_packet_desc_t.hw_timestamp 24
struct vma_completion_t 80
struct vma_completion_t.events 40
struct vma_completion_t.user_data 48
struct vma_completion_t.src 56
struct vma_completion_t.listen_fd 72
struct vma_packet_t 16
struct vma_packet_t.sz_iov 8
struct vma_packet_t.iov 16
struct vma_packets_t 8
struct vma_packets_t.pkts 8
struct vma_info_t 80
struct vma_info_t.packet_id 8
struct vma_info_t.src 16
struct vma_info_t.dst 24
struct vma_info_t.payload_sz 32
struct vma_info_t.socket_ready_queue_pkt_count 40
struct vma_info_t.socket_ready_queue_byte_count 44
struct vma_info_t.hw_timestamp 48
struct vma_info_t.sw_timestamp 64
struct vma_rate_limit_t 12
struct vma_rate_limit_t.max_burst_sz 4
struct vma_rate_limit_t.typical_pkt_sz 8
struct vma_ring_alloc_logic_attr 20
struct vma_ring_alloc_logic_attr.ring_alloc_logic 4
struct vma_ring_alloc_logic_attr.ring_profile_key 8
struct vma_ring_alloc_logic_attr.user_id 12
struct vma_cq_moderation_attr 8
struct vma_modify_ring_attr 16
struct vma_modify_ring_attr.ring_fd 4
struct vma_modify_ring_attr.cq_moderation 8
struct vma_packet_queue_ring_attr 4
struct vma_external_mem_attr 4
struct vma_ring_type_attr.ring_type 4
struct vma_ring_type_attr.ring_pktq 8
struct dev_data 12
struct hw_cq_data 48
struct hw_cq_data.dbrec 8
struct hw_cq_data.cq_size 16
struct hw_cq_data.cqe_size 20
struct hw_cq_data.cqn 24
struct hw_cq_data.uar 32
struct hw_cq_data.cons_idx 40
struct hw_wq_data 72
struct hw_wq_data.wqe_cnt 8
struct hw_wq_data.stride 12
struct hw_wq_data.dbrec 16
struct hw_wq_data.cq_data 24
struct hw_rq_data 88
struct hw_rq_data.head 72
struct hw_rq_data.tail 80
struct hw_sq_data 96
struct hw_sq_data.sq_num 72
struct hw_sq_data.bf 80
struct vma_mlx_hw_device_data 200
struct vma_mlx_hw_device_data.dev_data 4
struct vma_mlx_hw_device_data.sq_data 16
struct vma_mlx_hw_device_data.rq_data 112
vma_socketxtreme_events_t 8
ring_logic_t 4
vma_ring_profile_key 4
VMA_SOCKETXTREME_PACKET 0x100000000
VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED 0x200000000
MSG_VMA_ZCOPY_FORCE 0x1000000
MSG_VMA_ZCOPY 0x40000
VMA_SND_FLAGS_DUMMY 0x400
SO_VMA_GET_API 0xaf0
SO_VMA_USER_DATA 0xaf1
SO_VMA_RING_ALLOC_LOGIC 0xafa
SO_VMA_RING_USER_MEMORY 0xafb
SO_VMA_FLOW_TAG 0xb04
SO_VMA_SHUTDOWN_RX 0xb05
CMSG_VMA_IOCTL_USER_ALLOC 0xb54
RING_LOGIC_PER_CORE_ATTACH_THREADS 0x1f
VMA_RING_ALLOC_MASK_RING_ENGRESS 0x8
VMA_RING_EXTERNAL_MEM 0x1
VMA_EXTRA_API_IOCTL 0x200000";

/// What libvma had up to 9.2 (its own sizes and places), behind what later ones have.
const OURS: &str = "\
struct vma_api_t 184
struct vma_api_t.vma_cyclic_buffer_read 168
struct vma_api_t.get_mem_info 176
struct vma_cyclic_buffer_ring_attr 16
struct vma_cyclic_buffer_ring_attr.num 4
struct vma_cyclic_buffer_ring_attr.stride_bytes 8
struct vma_cyclic_buffer_ring_attr.hdr_bytes 10
struct vma_cyclic_buffer_ring_attr.packet_receive_mode 12
struct vma_ring_type_attr 24
struct vma_completion_cb_t 64
struct vma_completion_cb_t.payload_ptr 8
struct vma_completion_cb_t.payload_length 16
struct vma_completion_cb_t.packets 24
struct vma_completion_cb_t.usr_hdr_ptr 32
struct vma_completion_cb_t.usr_hdr_ptr_length 40
struct vma_completion_cb_t.hw_timestamp 48
VMA_RING_CYCLIC_BUFFER 0x2
VMA_EXTRA_API_CYCLIC_BUFFER_READ 0x8000
VMA_EXTRA_API_GET_MEM_INFO 0x80000";

#[test]
fn the_header_has_the_published_layout_in_every_language() {
    let languages: [&[&str]; 4] = [
        &["gcc", "-std=c99", "-D_DEFAULT_SOURCE", "-pedantic"],
        &["gcc", "-std=gnu17", "-pedantic"],
        &["g++", "-x", "c++", "-std=c++11", "-pedantic"],
        &["g++", "-x", "c++", "-std=c++20", "-pedantic"],
    ];
    fn lines(text: &str) -> BTreeMap<&str, &str> {
        text.lines().filter_map(|line| line.rsplit_once(' ')).collect()
    }
    let (mut expected, ours) = (lines(PUBLISHED), lines(OURS));
    expected.extend(ours);
    for language in languages {
        let output = Command::new(compile_with(language, "tests/extra/layout.c")).output().expect("it was just compiled");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(lines(&said), expected, "{language:?}");
    }
}

/// Has the compiler read a file, in C or C++ of that standard, with all warnings as errors.
fn is_clean(standard: &str, file: &Path) {
    let is_cpp = standard.contains("++");
    let mut compiler = Command::new(if is_cpp { "g++" } else { "gcc" });
    compiler.args(["-x", if is_cpp { "c++" } else { "c" }, &format!("-std={standard}"), "-Wall", "-Wextra", "-pedantic", "-Werror"]);
    compiler.args(["-fsyntax-only", "-I"]).arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include")).arg(file);
    let output = compiler.output().expect("gcc and g++ must be installed");
    assert!(output.status.success(), "{standard}, {}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_header_is_clean_in_every_language() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("header.c");
    let program = "#include <mellanox/vma_extra.h>\nint main(void)\n{\n\treturn vma_get_api() == NULL;\n}\n";
    std::fs::write(&file, program).expect("a file");
    for standard in ["c90", "gnu90", "c99", "c11", "gnu17", "c++98", "c++11", "c++17", "c++20"] {
        is_clean(standard, &file);
    }
}

#[test]
fn the_examples_are_clean_in_every_c_that_they_are_written_in() {
    let examples = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")).expect("a directory");
    let examples: Vec<_> = examples.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "c")).collect();
    assert!(examples.len() >= 7, "{examples:?}");
    for standard in ["c99", "c11", "gnu11", "gnu17"] {
        examples.iter().for_each(|example| is_clean(standard, example));
    }
}

#[test]
fn zero_copy() {
    finds_nothing_wrong("zcopy", &[], &[]);
}

#[test]
fn what_is_lent_may_be_written_to() {
    finds_nothing_wrong("written", &[], &[]);
    finds_nothing_wrong("written", &[], &[("RINGWAY_LEND_COPIES", "1")]);
    finds_nothing_wrong("written", &["callback first"], &[]);
    finds_nothing_wrong("written", &["completions"], &[("VMA_SOCKETXTREME", "1")]);
}

#[test]
fn interrupted_and_replaced() {
    finds_nothing_wrong("interrupted", &[], &[]);
    for _ in 0..10 {
        finds_nothing_wrong("interrupted", &["handlers that write"], &[]);
    }
}

#[test]
fn few_send_buffers() {
    for count in ["1", "19", "40"] {
        finds_nothing_wrong("scarce", &[], &[("VMA_TX_BUFS", count)]);
    }
    finds_nothing_wrong("scarce", &["others"], &[("VMA_TX_BUFS", "512")]);
}

#[test]
fn receive_callbacks() {
    finds_nothing_wrong("callback", &[], &[]);
}

#[test]
fn exceptions_pass_through_the_calls_that_callbacks_run_in() {
    says_nothing(&run(&compile_with(&["g++", "-std=c++17"], "tests/extra/thrown.cc"), &[], &[]), "thrown");
}

#[test]
fn dummy_sends() {
    finds_nothing_wrong("dummy", &[], &[]);
}

#[test]
fn headers_and_options() {
    finds_nothing_wrong("sockets", &[], &[]);
}

#[test]
fn the_programs_memory() {
    finds_nothing_wrong("allocator", &[], &[]);
    finds_nothing_wrong("allocator", &["4"], &[("VMA_RX_BUFS", "4")]);
}

#[test]
fn the_log_tells_of_the_queues_to_whoever_asks() {
    let program = compile("tests/extra/dummy.c");
    let log = |level| String::from_utf8_lossy(&run(&program, &[], &[("VMA_TRACELEVEL", level)]).stderr).into_owned();
    let debug = log("DEBUG");
    for fact in [
        "qpm[",
        "Creating QP of transport type 'ETH' on device 'shm' [",
        "HW Dummy send support for QP = 1\n",
        "Created CQ as Rx with fd[",
        "Created CQ as Tx with fd[",
    ] {
        let line = debug.lines().map(|line| format!("{line}\n")).find(|line| line.contains(fact));
        let line = line.unwrap_or_else(|| panic!("{fact} is not in {debug}"));
        // Seed 001: "Pid: 3832 Tid: 3832 VMA DEBUG: ...".
        assert!(line.starts_with("Pid: ") && line.contains(" Tid: ") && line.contains(" VMA DEBUG: "), "{line}");
    }
    assert!(!log("info").contains("HW Dummy"));
}

#[test]
fn getsockname_warms_the_way_of_what_is_sent_if_it_is_to() {
    let program = compile("tests/extra/sockets.c");
    let run = |trigger| run(&program, &[], &[("VMA_TRACELEVEL", "finer"), ("VMA_TRIGGER_DUMMY_SEND_GETSOCKNAME", trigger)]);
    let (off, on) = (run("0"), run("1"));
    assert!(off.status.success() && on.status.success());
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).contains("a dummy of 264 bytes: Ok(264)");
    assert_eq!((said(&off), said(&on)), (false, true), "{}", String::from_utf8_lossy(&on.stderr));
}

#[test]
fn cyclic_buffers() {
    finds_nothing_wrong("cyclic", &[], &[]);
    // (The progress thread takes next to nothing off the queues.)
    let idle = [("VMA_PROGRESS_ENGINE_INTERVAL", "0"), ("VMA_PROGRESS_ENGINE_WCE_MAX", "1"), ("VMA_CQ_POLL_BATCH_MAX", "1")];
    finds_nothing_wrong("cyclic", &["one_by_one"], &idle);
    let xtreme = [("VMA_SOCKETXTREME", "1"), ("VMA_TRACELEVEL", "info"), ("VMA_PROGRESS_ENGINE_INTERVAL", "0")];
    let output = run(&compile("tests/extra/cyclic.c"), &[], &xtreme);
    says_nothing(&output, "with VMA_SOCKETXTREME=1");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("its records are written by software: shm has no striding receive queue"), "{log}");
}

/// As root, or (where the kernel allows it) in a user namespace; where there is neither, it is left out, unless `CI` is set.
#[test]
fn a_thread_is_not_taken_for_one_that_had_its_number() {
    let program = compile("tests/extra/recycled.c");
    // SAFETY: no preconditions.
    let flags: &[&str] = if unsafe { libc::geteuid() } == 0 { &[] } else { &["--user", "--map-root-user"] };
    let tells_numbers = "echo 1 > /proc/sys/kernel/ns_last_pid";
    let tried = Command::new("unshare").args(flags).args(["--pid", "--fork", "sh", "-c", tells_numbers]).output().expect("unshare(1)");
    if !tried.status.success() && std::env::var_os("CI").is_none() {
        println!("left out: {}", String::from_utf8_lossy(&tried.stderr));
        return;
    }
    for logic in ["20", "31"] {
        let mut command = Command::new("timeout");
        command
            .args(["100", "unshare"])
            .args(flags)
            .args(["--pid", "--fork", "--kill-child", "env"])
            .arg(format!("LD_PRELOAD={}", library().display()));
        let output =
            command.arg(&program).arg(logic).env("VMA_RING_ALLOCATION_LOGIC_RX", logic).output().expect("timeout(1) is part of coreutils");
        says_nothing(&output, logic);
    }
}

#[test]
fn rules_and_statistics() {
    finds_nothing_wrong("control", &[], &[]);
    finds_nothing_wrong("control", &[], &[("VMA_OFFLOADED_SOCKETS", "0")]);
    let output = run(&compile("tests/extra/control.c"), &[], &[]);
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(log.contains("add_conf_rule: ") && log.contains("VMA WARNING: \tFd=["), "{log}");
}

#[test]
fn older_programs_get_the_table_that_they_know() {
    let program = compile("tests/extra/tables.c");
    let releases = [("", "D"), ("9.8", "D"), ("9.8.70", "D"), ("9.8.31", "C1"), ("9.3", "C1"), ("9.2", "B"), ("9.2.2", "B"), ("9.1", "B")];
    for (layout, says) in releases.into_iter().chain([("8.4", "A0"), ("1.0", "D"), ("7", "D")]) {
        let output = run(&program, &[], &[("VMA_API_LAYOUT", layout)]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{says}\n"), "{layout}");
        let said = String::from_utf8_lossy(&output.stderr);
        let warned = said.matches(&format!("VMA_API_LAYOUT={layout} is not understood")).count();
        assert_eq!(warned, usize::from(matches!(layout, "1.0" | "7")), "{said}");
    }
}

#[test]
fn without_the_library_there_is_no_table() {
    let program = compile("tests/extra/tables.c");
    let output = Command::new(&program).output().expect("it was just compiled");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "no table\n");
}

/// The functions of the header's table: the comment above each, and its name.
fn documented(header: &str) -> Vec<(String, String)> {
    let table = header.split_once("struct vma_api_t {").and_then(|(_, rest)| rest.split_once("#pragma pack(pop)")).expect("the table").0;
    let mut comment = String::new();
    let mut all = Vec::new();
    for line in table.lines() {
        let line = line.trim_start();
        if let Some(text) = line.strip_prefix('*') {
            comment.push_str(text);
            comment.push('\n');
        } else if let Some((_, rest)) = line.split_once("(*") {
            let name = rest.split_once(')').expect("a name").0;
            all.push((std::mem::take(&mut comment), name.to_owned()));
        } else {
            comment.clear();
        }
    }
    all
}

/// The lines of a comment that are an example: indented by a tab.
fn example(comment: &str) -> String {
    comment.lines().filter(|line| line.starts_with('\t')).map(|line| format!("{line}\n")).collect()
}

/// What the examples take for granted.
const AROUND: &str = "#define _GNU_SOURCE\n#include <mellanox/vma_extra.h>\n#include <poll.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
    #include <sys/epoll.h>\n#include <sys/mman.h>\n#include <unistd.h>\n\
    vma_recv_callback_retval_t drop_what_is_short(int, size_t, struct iovec *, struct vma_info_t *, void *);\n\
    void use(void *, ...);\nvoid handle(void *, size_t, size_t);\n";
const WITHIN: &str = "struct vma_api_t *vma = vma_get_api();\nint fd = 3, ring = 4;\nstruct vma_info_t *info = NULL;\nstruct sockaddr_in to;\n\
    struct vma_completion_t done;\nstruct vma_buff_t *kept = NULL;\nstatic char memory[4096];\n\
    (void)fd, (void)ring, (void)info, (void)to, (void)done, (void)kept, (void)memory;\n";

#[test]
fn every_function_is_described_with_an_example_that_compiles() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(root.join("include/mellanox/vma_extra.h")).expect("the header");
    let all = documented(&header);
    assert_eq!(all.len(), 22, "{all:?}");
    let mut source = AROUND.to_owned();
    for (comment, name) in &all {
        assert!(comment.contains("eturns"), "{name} does not say what it returns");
        let example = example(comment);
        assert!(example.contains(&format!("vma->{name}(")), "{name} has no example:\n{comment}");
        source.push_str(&format!("void of_{name}(void)\n{{\n{WITHIN}{{\n{example}}}\n}}\n"));
    }
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("examples-of-the-header.c");
    std::fs::write(&file, source).expect("a file");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]).arg(root.join("include")).arg(&file);
    let output = gcc.output().expect("gcc must be installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
