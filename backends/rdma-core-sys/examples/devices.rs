//! Lists the RDMA devices, what they can do, and the state of their ports.

use std::ffi::CStr;
use std::io;

use rdma_core_sys::{
    IBV_LINK_LAYER_ETHERNET, IBV_QPT_RAW_PACKET, Ibverbs, Mlx5dv, ibv_context, ibv_device_attr_ex, ibv_is_qpt_supported, ibv_port_attr,
    mlx5dv_context,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let verbs = Ibverbs::get()?;
    let mut count = 0;
    // SAFETY: the count is writable.
    let list = unsafe { verbs.ibv_get_device_list(&mut count) };
    if list.is_null() {
        return Err(format!("no devices can be listed: {}", io::Error::last_os_error()).into());
    }
    println!("{count} devices");
    for index in 0..usize::try_from(count)? {
        // SAFETY: the list has that many devices, and lives; a context is used before it is closed.
        unsafe {
            let device = *list.add(index);
            println!("{}", CStr::from_ptr(verbs.ibv_get_device_name(device)).to_string_lossy());
            let context = verbs.ibv_open_device(device);
            if context.is_null() {
                println!("  cannot be opened: {}", io::Error::last_os_error());
                continue;
            }
            describe(verbs, context);
            if let Ok(mlx5) = Mlx5dv::get()
                && mlx5.mlx5dv_is_supported.is_some_and(|is| is(device))
            {
                let mut own = mlx5dv_context::default();
                mlx5.mlx5dv_query_device(context, &mut own);
                println!("  mlx5: flags {:#x}", own.flags);
            }
            verbs.ibv_close_device(context);
        }
    }
    // SAFETY: the list is the library's, and not used after this.
    unsafe { verbs.ibv_free_device_list(list) };
    Ok(())
}

/// Prints what a device says of itself.
///
/// # Safety
/// The context is open.
unsafe fn describe(verbs: &Ibverbs, context: *mut ibv_context) {
    let mut attr = ibv_device_attr_ex::default();
    // SAFETY: the context is open, and the attribute writable.
    let errno = unsafe { verbs.ibv_query_device_ex(context, std::ptr::null(), &mut attr) };
    if errno != 0 {
        println!("  cannot be asked: {}", io::Error::from_raw_os_error(errno));
        return;
    }
    let raw = |caps| if ibv_is_qpt_supported(caps, IBV_QPT_RAW_PACKET) { "yes" } else { "no" };
    let (tso, pacing) = (raw(attr.tso_caps.supported_qpts), raw(attr.packet_pacing_caps.supported_qpts));
    println!("  {} QPs, raw packets with TSO: {tso}, with pacing: {pacing}; {} bytes of its own", attr.orig_attr.max_qp, attr.max_dm_size);
    for number in 1..=attr.orig_attr.phys_port_cnt {
        let mut port = ibv_port_attr::default();
        // SAFETY: as above.
        if unsafe { verbs.ibv_query_port(context, number, &mut port) } != 0 {
            continue;
        }
        // SAFETY: the function takes any number, and its strings are constants.
        let state = unsafe { CStr::from_ptr(verbs.ibv_port_state_str(port.state)) };
        let link = if port.link_layer == IBV_LINK_LAYER_ETHERNET { "Ethernet" } else { "InfiniBand" };
        println!("  port {number}: {}, {link}, {} GIDs", state.to_string_lossy(), port.gid_tbl_len);
    }
}
