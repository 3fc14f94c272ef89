/* The emulator's cooperative groups: blocks, tiles of a warp, and the grid of a cooperative launch.
 */
#pragma once
#pragma GCC system_header

namespace cooperative_groups {

class thread_block {
  public:
    static void sync()
    {
        __syncthreads();
    }
    static unsigned thread_rank()
    {
        return tune_thread();
    }
    static unsigned size()
    {
        return blockDim.x * blockDim.y * blockDim.z;
    }
    static unsigned num_threads()
    {
        return size();
    }
    static dim3 group_index()
    {
        return dim3(blockIdx);
    }
    static dim3 thread_index()
    {
        return dim3(threadIdx);
    }
};

static inline thread_block this_thread_block()
{
    return thread_block();
}

class grid_group {
  public:
    static void sync()
    {
        TUNE_ORDERED();
        tune_grid_barrier();
        TUNE_ORDERED();
    }
    static bool is_valid()
    {
        return true;
    }
    static unsigned long long block_rank()
    {
        return blockIdx.x + (unsigned long long)gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    }
    static unsigned long long num_blocks()
    {
        return (unsigned long long)gridDim.x * gridDim.y * gridDim.z;
    }
    static unsigned long long thread_rank()
    {
        return block_rank() * thread_block::size() + tune_thread();
    }
    static unsigned long long size()
    {
        return num_blocks() * thread_block::size();
    }
    static unsigned long long num_threads()
    {
        return size();
    }
};

static inline grid_group this_grid()
{
    return grid_group();
}

class cluster_group {
  public:
    static void sync()
    {
        TUNE_ORDERED();
        tune_cluster_barrier();
        TUNE_ORDERED();
    }
    static void barrier_arrive()
    {
        TUNE_ORDERED();
    }
    static void barrier_wait()
    {
        sync();
    }
    static unsigned block_rank()
    {
        return tune_cluster_rank();
    }
    static unsigned num_blocks()
    {
        return tune_cluster_blocks();
    }
    static unsigned thread_rank()
    {
        return block_rank() * thread_block::size() + tune_thread();
    }
    static unsigned num_threads()
    {
        return num_blocks() * thread_block::size();
    }
    template <typename T> static T *map_shared_rank(T *shared, int rank)
    {
        return (T *)tune_cluster_address(shared, (unsigned)rank);
    }
};

static inline cluster_group this_cluster()
{
    return cluster_group();
}

template <unsigned TUNE_TILE> class thread_block_tile {
    static_assert(TUNE_TILE <= 32 && (TUNE_TILE & (TUNE_TILE - 1)) == 0,
        "a tile has 1, 2, 4, 8, 16 or 32 threads");

    static unsigned mask()
    {
        unsigned lanes = TUNE_TILE == 32 ? 0xffffffffu : (1u << TUNE_TILE % 32) - 1;
        return lanes << (tune_lane() & ~(TUNE_TILE - 1));
    }

  public:
    static void sync()
    {
        __syncwarp(mask());
    }
    static unsigned thread_rank()
    {
        return tune_thread() % TUNE_TILE;
    }
    static unsigned meta_group_rank()
    {
        return tune_thread() / TUNE_TILE;
    }
    static unsigned meta_group_size()
    {
        return (thread_block::size() + TUNE_TILE - 1) / TUNE_TILE;
    }
    static constexpr unsigned size()
    {
        return TUNE_TILE;
    }
    static constexpr unsigned num_threads()
    {
        return TUNE_TILE;
    }
    template <typename TuneT> static TuneT shfl(TuneT value, unsigned rank)
    {
        return __shfl_sync(mask(), value, (int)rank, TUNE_TILE);
    }
    template <typename TuneT> static TuneT shfl_down(TuneT value, unsigned delta)
    {
        return __shfl_down_sync(mask(), value, delta, TUNE_TILE);
    }
    template <typename TuneT> static TuneT shfl_up(TuneT value, unsigned delta)
    {
        return __shfl_up_sync(mask(), value, delta, TUNE_TILE);
    }
    template <typename TuneT> static TuneT shfl_xor(TuneT value, unsigned bits)
    {
        return __shfl_xor_sync(mask(), value, (int)bits, TUNE_TILE);
    }
    static unsigned ballot(int predicate)
    {
        return __ballot_sync(mask(), predicate) >> (tune_lane() & ~(TUNE_TILE - 1));
    }
    static int any(int predicate)
    {
        return __any_sync(mask(), predicate);
    }
    static int all(int predicate)
    {
        return __all_sync(mask(), predicate);
    }
};

template <unsigned TUNE_TILE>
static inline thread_block_tile<TUNE_TILE> tiled_partition(const thread_block &)
{
    return thread_block_tile<TUNE_TILE>();
}

template <typename TuneGroup> static inline void sync(const TuneGroup &group)
{
    group.sync();
}

} // namespace cooperative_groups
