#!/bin/bash
#SBATCH --account=project_42
#SBATCH --mail-type=BEGIN,END --mail-user=me@example.org
#SBATCH --constraint=ib
#SBATCH -N2 -A other
#SBATCH --ntasks-per-node=4
