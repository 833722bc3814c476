"""Pi by the midpoint rule: every rank sums its part, MPI adds them up. Needs Open MPI 4 alone."""

import ctypes
import socket

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
world = ctypes.byref(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_world"))
double = ctypes.byref(ctypes.c_char.in_dll(mpi, "ompi_mpi_double"))
add = ctypes.byref(ctypes.c_char.in_dll(mpi, "ompi_mpi_op_sum"))

STEPS = 1_000_000

mpi.MPI_Init(None, None)
rank, size = ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
width = 1.0 / STEPS
mine = ctypes.c_double(
    sum(
        4.0 * width / (1.0 + ((i + 0.5) * width) ** 2) for i in range(rank.value, STEPS, size.value)
    )
)
print(f"rank {rank.value} of {size.value} on {socket.gethostname()}", flush=True)
whole = ctypes.c_double()
mpi.MPI_Reduce(ctypes.byref(mine), ctypes.byref(whole), 1, double, add, 0, world)
if rank.value == 0:
    print(f"pi is approximately {whole.value:.10f}", flush=True)
mpi.MPI_Finalize()
