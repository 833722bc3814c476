#!/bin/bash
#SBATCH --nodes=16 --ntasks-per-node=8 --gpus-per-node=8
#SBATCH --exclusive --exclude=node[003-005],bad-1
srun all_reduce_perf
