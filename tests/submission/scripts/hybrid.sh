#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks=8
#SBATCH --cpus-per-task=24
#SBATCH --mem-per-cpu=2000
#SBATCH --time=0-06:00:00
srun app
