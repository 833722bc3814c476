#!/bin/bash -l
#SBATCH -J mpi
#SBATCH -N 2
#SBATCH --ntasks-per-node=36
#SBATCH -t 1-12
#SBATCH -p standard
srun ./solver
