#!/bin/bash
#SBATCH --time=1:00:00 -N 3
#SBATCH --time=30
#SBATCH --no-requeue
#SBATCH --requeue
