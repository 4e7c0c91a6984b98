//! What is filled in, byte by byte as the installed header's inline functions do it.

use std::ffi::c_void;

use super::cc;
use crate::*;

fn bytes<T>(of: &T) -> &[u8] {
    // SAFETY: the segments have no padding, and all of them is initialised.
    unsafe { std::slice::from_raw_parts((&raw const *of).cast(), size_of::<T>()) }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A C program's lines, one a segment that it fills.
fn filled_by_c(segments: &[(&str, &str)]) -> Vec<String> {
    let fill = |(kind, call): &(&str, &str)| {
        format!(
            "{{ union {{ struct {kind} seg; unsigned char bytes[64]; }} u; __builtin_memset(&u, 0, sizeof u); {call};
            for (unsigned i = 0; i < {}; i++) printf(\"%02x\", u.bytes[i]); printf(\"\\n\"); }}\n",
            if *kind == "mlx5_wqe_eth_seg" { "64".to_owned() } else { format!("sizeof(struct {kind})") }
        )
    };
    let body = "unsigned char mac[6] = {1,2,3,4,5,6}, gid[16] = {9,8,7,6,5,4,3,2,1,0,11,12,13,14,15,16}, hdr[54];
        for (int i = 0; i < 54; i++) hdr[i] = 200 - i;\n"
        .to_owned()
        + &segments.iter().map(fill).collect::<String>();
    cc::printed(&body).lines().map(str::to_owned).collect()
}

#[test]
fn segments_are_as_the_header_fills_them() {
    cc::need_headers();
    let c = filled_by_c(&[
        ("mlx5_wqe_ctrl_seg", "mlx5dv_set_ctrl_seg(&u.seg, 0xfedc, MLX5_OPCODE_TSO, 0x12, 0xabcdef, 0x8a, 0x3f, 0x77, 0x01020304)"),
        (
            "mlx5_wqe_datagram_seg",
            "mlx5dv_set_dgram_seg(&u.seg, 0x0102030405060708, 0x123456, 1, 2, 0x83, 0xc001, mac, 5, 64, 0x40100abc, gid)",
        ),
        ("mlx5_wqe_data_seg", "mlx5dv_set_data_seg(&u.seg, 0x01020304, 0xa0b0c0d0, 0x1122334455667788)"),
        ("mlx5_wqe_eth_seg", "mlx5dv_set_eth_seg(&u.seg, MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM, 1460, 18, hdr)"),
        ("mlx5_wqe_eth_seg", "mlx5dv_set_eth_seg(&u.seg, MLX5_ETH_WQE_L4_CSUM, 9000, 50, hdr)"),
    ]);
    let mut ctrl = mlx5_wqe_ctrl_seg::default();
    let mut dgram = mlx5_wqe_datagram_seg::default();
    let mut data = mlx5_wqe_data_seg::default();
    let hdr: [u8; 54] = std::array::from_fn(|i| 200 - i as u8);
    let gid = [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 11, 12, 13, 14, 15, 16];
    let mut eth = [[mlx5_wqe_eth_seg::default(); 2]; 2];
    // SAFETY: the segments are the test's own; behind an Ethernet segment there is room for another.
    unsafe {
        mlx5dv_set_ctrl_seg(&mut ctrl, 0xfedc, MLX5_OPCODE_TSO, 0x12, 0xab_cdef, 0x8a, 0x3f, 0x77, 0x0102_0304);
        mlx5dv_set_dgram_seg(
            &mut dgram,
            0x0102_0304_0506_0708,
            0x12_3456,
            1,
            2,
            0x83,
            0xc001,
            &[1, 2, 3, 4, 5, 6],
            5,
            64,
            0x4010_0abc,
            &gid,
        );
        mlx5dv_set_data_seg(&mut data, 0x0102_0304, 0xa0b0_c0d0, 0x1122_3344_5566_7788);
        let both = MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM;
        mlx5dv_set_eth_seg(eth[0].as_mut_ptr(), both, 1460, 18, hdr.as_ptr());
        mlx5dv_set_eth_seg(eth[1].as_mut_ptr(), MLX5_ETH_WQE_L4_CSUM, 9000, 50, hdr.as_ptr());
    }
    let rust = [bytes(&ctrl), bytes(&dgram), bytes(&data), bytes(&eth[0]), bytes(&eth[1])];
    assert_eq!(rust.map(hex).to_vec(), c);
}

#[test]
fn completions_are_read_as_by_the_header() {
    cc::need_headers();
    let c = cc::printed(
        "for (int b = 0; b < 256; b++) { struct mlx5_cqe64 cqe; cqe.op_own = b;
        printf(\"%d %d %d %d\", mlx5dv_get_cqe_owner(&cqe), mlx5dv_get_cqe_se(&cqe),
            mlx5dv_get_cqe_format(&cqe), mlx5dv_get_cqe_opcode(&cqe));
        mlx5dv_set_cqe_owner(&cqe, b >> 3); printf(\" %d\\n\", cqe.op_own); }\n",
    );
    let rust = (0..=255_u8).map(|op_own| {
        let mut cqe = mlx5_cqe64 { op_own, ..mlx5_cqe64::default() };
        let cqe = &raw mut cqe;
        // SAFETY: the completion is the test's own.
        unsafe {
            let read = [mlx5dv_get_cqe_owner(cqe), mlx5dv_get_cqe_se(cqe), mlx5dv_get_cqe_format(cqe), mlx5dv_get_cqe_opcode(cqe)];
            mlx5dv_set_cqe_owner(cqe, op_own >> 3);
            let [owner, se, format, opcode] = read;
            format!("{owner} {se} {format} {opcode} {}\n", (*cqe).op_own)
        }
    });
    assert_eq!(rust.collect::<String>(), c);
}

#[test]
fn ticks_become_nanoseconds_as_by_the_header() {
    cc::need_headers();
    let mask = (1_u64 << 48) - 1;
    let info = mlx5dv_clock_info { nsec: 1_700_000_000_000_000_000, last_cycles: 1 << 40, frac: 12345, mult: 0x19_999a, shift: 20, mask };
    let times = [1 << 40, (1 << 40) + 1, (1 << 40) + 1_000_000, (1 << 40) - 1, (1 << 40) - 99_999, 5, mask, (1 << 40) + mask / 2 + 2];
    let mut body = format!(
        "struct mlx5dv_clock_info i = {{ {}ull, {}ull, {}ull, {}u, {}u, {}ull }};\n",
        info.nsec, info.last_cycles, info.frac, info.mult, info.shift, info.mask
    );
    for time in times {
        body += &format!("printf(\"%llu \", (unsigned long long)mlx5dv_ts_to_ns(&i, {time}ull));\n");
    }
    assert_eq!(times.map(|time| format!("{} ", mlx5dv_ts_to_ns(&info, time))).concat(), cc::printed(&body));
}

#[test]
fn fields_of_commands_are_set_and_read_as_by_the_header() {
    cc::need_headers();
    let fields = [(0, 16, 0x1234_u32), (16, 3, 5), (31, 1, 1), (32, 32, 0xdead_beef), (69, 20, 0xf_edcb), (96, 8, 0xa5)];
    let mut body =
        "union { unsigned char bytes[32]; unsigned long long align; } u; for (int i = 0; i < 32; i++) u.bytes[i] = i * 7;\n".to_owned();
    let mut command: [u64; 4] = std::array::from_fn(|word| u64::from_ne_bytes(std::array::from_fn(|i| ((word * 8 + i) * 7) as u8)));
    let p = command.as_mut_ptr().cast::<c_void>();
    // SAFETY: all fields are within the test's command, which is aligned to 8 bytes.
    unsafe {
        for (bit_off, bit_sz, value) in fields {
            body += &format!("_devx_set(&u, {value}u, {bit_off}, {bit_sz});\n");
            _devx_set(p, value, bit_off, bit_sz);
            assert_eq!(_devx_get(p, bit_off, bit_sz), value);
        }
        body += "_devx_set64(&u, 0x0102030405060708ull, 192);\n";
        _devx_set64(p, 0x0102_0304_0506_0708, 192);
        assert_eq!(_devx_get64(p, 192), 0x0102_0304_0506_0708);
    }
    body += "for (int i = 0; i < 32; i++) printf(\"%02x\", u.bytes[i]);\n";
    assert_eq!(hex(bytes(&command)), cc::printed(&body));
}
