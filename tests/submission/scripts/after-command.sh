#!/bin/bash
#SBATCH -N 2

date
#SBATCH -N 5
#SBATCH --mem=1G
