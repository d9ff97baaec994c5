//! The rings between us and the kernel as their indices pass 2^32, which takes an hour at a million frames a second. The
//! arithmetic is libxdp's; both ends are played here, over memory of our own.

use std::collections::VecDeque;

use libxdp_sys::{
    xdp_desc, xsk_ring_cons, xsk_ring_cons__peek, xsk_ring_cons__release, xsk_ring_cons__rx_desc,
    xsk_ring_prod, xsk_ring_prod__reserve, xsk_ring_prod__submit, xsk_ring_prod__tx_desc,
};
use lockgate_tests::random::Random;

const SIZE: u32 = 64;

/// One ring with its two ends. The memory is on the heap, where moving this does not move it.
struct Ring {
    producer: xsk_ring_prod,
    consumer: xsk_ring_cons,
    _indices: Box<[u32; 3]>,
    _descriptors: Box<[xdp_desc]>,
}

impl Ring {
    /// An empty ring whose indices stand at `start`, set up as libxdp does it.
    fn new(start: u32) -> Self {
        let mut indices = Box::new([start, start, 0]);
        let mut descriptors =
            vec![xdp_desc { addr: 0, len: 0, options: 0 }; SIZE as usize].into_boxed_slice();
        let [producer, consumer, flags] = indices.each_mut().map(|index| &raw mut *index);
        let ring = descriptors.as_mut_ptr().cast();
        let (mask, size) = (SIZE - 1, SIZE);
        Self {
            producer: xsk_ring_prod {
                cached_prod: start,
                // Of a producing end this is the consumer's index and the size.
                cached_cons: start.wrapping_add(SIZE),
                mask,
                size,
                producer,
                consumer,
                ring,
                flags,
            },
            consumer: xsk_ring_cons {
                cached_prod: start,
                cached_cons: start,
                mask,
                size,
                producer,
                consumer,
                ring,
                flags,
            },
            _indices: indices,
            _descriptors: descriptors,
        }
    }

    /// Puts all of `values` in, or none of them.
    fn put(&mut self, values: &[u64]) -> bool {
        let count = u32::try_from(values.len()).unwrap();
        let mut at = 0;
        // SAFETY: the pointers of the ring are those of its boxes, which live as long as it.
        let reserved = unsafe { xsk_ring_prod__reserve(&raw mut self.producer, count, &raw mut at) };
        if reserved == 0 {
            return false;
        }
        assert_eq!(reserved, count);
        for (offset, value) in (0..).zip(values) {
            // SAFETY: as above.
            let descriptor =
                unsafe { xsk_ring_prod__tx_desc(&raw mut self.producer, at.wrapping_add(offset)) };
            // SAFETY: it is one of the ring's descriptors, and nobody else looks at it before it is submitted.
            unsafe { descriptor.write(xdp_desc { addr: *value, len: count, options: 0 }) };
        }
        // SAFETY: as above.
        unsafe { xsk_ring_prod__submit(&raw mut self.producer, count) };
        true
    }

    /// Takes up to `most` values out.
    fn take(&mut self, most: u32) -> Vec<u64> {
        let mut at = 0;
        // SAFETY: the pointers of the ring are those of its boxes, which live as long as it.
        let count = unsafe { xsk_ring_cons__peek(&raw mut self.consumer, most, &raw mut at) };
        let mut values = Vec::new();
        for offset in 0..count {
            // SAFETY: as above.
            let descriptor =
                unsafe { xsk_ring_cons__rx_desc(&raw const self.consumer, at.wrapping_add(offset)) };
            // SAFETY: it is one of the ring's descriptors, and it was submitted.
            values.push(unsafe { (*descriptor).addr });
        }
        // SAFETY: as above.
        unsafe { xsk_ring_cons__release(&raw mut self.consumer, count) };
        values
    }
}

#[test]
fn order_and_counts_survive_the_wrap_of_the_indices() {
    for start in [u32::MAX - 5, u32::MAX, 0, 0x7fff_fff0, u32::MAX - 5000] {
        let mut ring = Ring::new(start);
        let (mut model, mut next) = (VecDeque::new(), 0);
        let mut random = Random::new(start.into());
        for step in 0..10_000 {
            let count = 1 + random.below(40);
            let values: Vec<u64> = (next..).take(count).collect();
            let fits = model.len() + count <= SIZE as usize;
            assert_eq!(
                ring.put(&values),
                fits,
                "from {start}, step {step}: {} of {SIZE} and {count} more",
                model.len()
            );
            if fits {
                model.extend(&values);
                next += count as u64;
            }
            // What came since the last look may be seen at the next one only, but an empty look is a fresh one.
            let most = 1 + random.below(40);
            let taken = ring.take(u32::try_from(most).unwrap());
            assert!(taken.len() <= most && taken.is_empty() == model.is_empty(), "from {start}, step {step}");
            let expected: Vec<u64> = model.drain(..taken.len()).collect();
            assert_eq!(taken, expected, "from {start}, step {step}");
        }
        assert!(next > 10_000);
    }
}
